"""Linear layers of a model that only infers in int8, activations quantised as they come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class Int8Dynamic(Remedy):
    """torch.ao.quantization.quantize_dynamic on the linear layers of a model in eval() mode. The guard says how far the
    outputs move; whether that is good enough is the user's to say."""

    name = "int8_dynamic"
    title = "computes linear layers in int8 (inference)"
    safety = "semantic"
    place = "model"
    saves_memory = True
    codes = ()
    conflicts = ("bf16_autocast", "compile")
    by_hand = "torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)"

    def probe(self) -> str:
        import torch

        return "" if torch.backends.quantized.supported_engines else "this torch has no quantised kernels"

    def apply(self, seams: Seams) -> None:
        import torch

        quantize: Any = torch.ao.quantization.quantize_dynamic

        def quantise(module: Any) -> None:
            layers = [m for m in module.modules() if type(m) is torch.nn.Linear]
            if module.training or not layers:
                return
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for parent in list(module.modules()):
                    for name, child in list(parent.named_children()):
                        if type(child) is torch.nn.Linear:
                            made = quantize(torch.nn.Sequential(child), {torch.nn.Linear}, torch.qint8)
                            setattr(parent, name, made[0])
                            seams.undo(partial(setattr, parent, name, child))
            seams.applied(self.name, f"{len(layers)} layers")

        seams.at_model(quantise)
