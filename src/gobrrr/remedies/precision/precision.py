"""The remedy that computes in bfloat16."""

from __future__ import annotations

from typing import Any

from gobrrr.remedies.edits.forms import BeforeTraining
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.verdict.report import Report

HELPER = """import functools
import types

from torch.utils._pytree import tree_map


def in_bfloat16(model):
    \"\"\"Matrix products in bfloat16, results in float32, of this model, its copies, and one saved whole.\"\"\"
    kind, before = type(model), model.forward
    plain = isinstance(kind.forward, types.FunctionType) and "forward" not in vars(model)
    model.computes_in_bfloat16 = True
    if plain and hasattr(kind.forward, "lowers"):  # of another model of this class
        return
    forward = kind.forward if plain else lambda self, *args, **kwargs: before(*args, **kwargs)

    @functools.wraps(forward)
    def lowered(self, *args, **kwargs):
        if not getattr(self, "computes_in_bfloat16", False):
            return forward(self, *args, **kwargs)
        device = next((p.device.type for p in self.parameters()), "cpu")
        with torch.autocast(device, torch.bfloat16):
            result = forward(self, *args, **kwargs)
        return tree_map(lambda x: x.float() if getattr(x, "dtype", None) == torch.bfloat16 else x, result)

    lowered.__name__ = "forward"
    if plain and not kind.__module__.startswith("torch."):  # a method of its own would be saved with it
        kind.forward, lowered.lowers = lowered, True
    else:
        model.forward = types.MethodType(lowered, model)"""
"""As the remedy does it, for the user's own file."""

FLOAT_BYTES = 4  # bytes of a float32


class Bf16Autocast(Remedy):
    """torch.autocast around the model's forward; floating outputs come back in float32, so that losses stay there."""

    name = "bf16_autocast"
    title = "computes matrix products in bfloat16 (twice as fast or more where the chip has units for it)"
    safety = "tolerance"
    place = "model"
    precision = "bfloat16"
    saves_memory = True
    by_hand = 'with torch.autocast("cpu", torch.bfloat16):  # or "cuda"'
    unseen = (
        "whole numbers above 256 are rounded: positions that a forward multiplies, where inputs become longer after "
        "the steps that were checked"
    )
    edit = BeforeTraining("in_bfloat16({model})", HELPER)

    def is_pointless(self, report: Report) -> bool:
        """Return True where most of the work is done in half precision already."""
        return super().is_pointless(report) or report.roofline.dtype in ("bf16", "fp16")

    def probe(self) -> str:
        import torch

        if torch.cuda.is_available() and not torch.cuda.is_bf16_supported():
            return "this GPU has no bfloat16"
        return ""

    def apply(self, seams: Seams) -> None:
        def wrap(module: Any) -> None:
            sizes = {p.dtype.itemsize for p in module.parameters() if p.is_floating_point()}
            if not sizes:  # a loss's module stays as it is
                return
            if min(sizes) < FLOAT_BYTES:  # what comes after it takes what it gives
                seams.declined(self.name, "part of the model is in half precision already")
                return
            seams.replace(module, "forward", replaced(module, _in_bfloat16))
            seams.applied(self.name, type(module).__name__)

        seams.at_model(wrap)


def _in_bfloat16(module: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a forward under autocast, with outputs in float32."""
    import torch
    from torch.utils._pytree import tree_map

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value

    device = next((p.device.type for p in module.parameters()), "cpu")
    with torch.autocast(device, torch.bfloat16):
        result = forward(*args, **kwargs)
    return tree_map(widened, result)
