"""Matrix products in float16 with scaled gradients: for GPUs whose tensor cores know no bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy
from gobrrr.remedies.precision.bf16_autocast import autocast_forward
from gobrrr.rules.model.finding import Saving

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams
    from gobrrr.rules.verdict.report import Report


class Float16Autocast(Remedy):
    """torch.autocast around the model's forward, and what torch.amp.GradScaler does around backward and step: gradients
    are computed of the scaled loss, divided before they are accumulated (so that clipping and accumulation see them as
    ever), and an update of gradients that overflowed is passed over, with half the scale from then on."""

    name = "float16_autocast"
    title = "computes matrix products in float16 with scaled gradients (GPUs without bfloat16)"
    safety = "tolerance"
    place = "model"
    precision = "float16"
    saves_memory = True
    codes = ("BRR110",)
    conflicts = ("float32", "bf16_autocast")
    by_hand = 'scaler = torch.amp.GradScaler("cuda")\nwith torch.autocast("cuda", torch.float16):'

    def predicts(self, report: Report) -> Saving:
        """Nothing without an accelerator: CPUs compute float16 more slowly than float32."""
        return super().predicts(report) if report.device is not None else Saving()

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.precision.gradient_scaling import GradientScaling

        scaling = GradientScaling()
        scaling.install()
        seams.undo(scaling.remove)

        def wrap(module: Any) -> None:
            import torch

            device = next((p.device.type for p in module.parameters()), "")
            if not device or torch.is_autocast_enabled(device):  # a loss's module; a program that sees to it itself
                return
            autocast_forward(module, seams, "float16")
            scaling.divide_gradients(module)
            seams.applied(self.name, type(module).__name__)

        seams.at_model(wrap)
        seams.at_optimizer(scaling.watch)
