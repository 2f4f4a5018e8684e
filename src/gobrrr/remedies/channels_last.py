"""Convolutions on images laid out with their channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.remedies.forwards import replaced
from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class ChannelsLast(Remedy):
    """Weights of 2-d convolutions and four-dimensional inputs in torch.channels_last."""

    name = "channels_last"
    title = "lays images and convolution weights out with channels last"
    safety = "tolerance"
    place = "model"
    codes = ("BRR204",)
    by_hand = "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)"
    edit = BeforeTraining("{model}.to(memory_format=torch.channels_last)", "import torch")

    def apply(self, seams: Seams) -> None:
        import torch
        from torch.utils._pytree import tree_map

        def last(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point():
                return value.contiguous(memory_format=torch.channels_last)
            return value

        def laid_out(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(*tree_map(last, args), **tree_map(last, kwargs))

        def lay_out(module: Any) -> None:
            if not any(isinstance(m, torch.nn.Conv2d) for m in module.modules()):
                return
            module.to(memory_format=torch.channels_last)
            seams.undo(lambda: module.to(memory_format=torch.contiguous_format))
            seams.replace(module, "forward", replaced(module, laid_out))
            seams.applied(self.name, type(module).__name__)

        seams.at_model(lay_out)


REMEDY = ChannelsLast()
