"""Convolutions on images laid out with their channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.capture.unseen import is_functional
from gobrrr.remedies.forwards import replaced
from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

HELPER = """from torch.utils._pytree import tree_map


def in_plain_layout(module, given, output):
    \"\"\"What is made with channels last is given out as it would be without.\"\"\"
    return tree_map(lambda x: x.contiguous() if isinstance(x, torch.Tensor) and x.dim() == 4 else x, output)"""
"""As the remedy does it, for the user's own file."""


class ChannelsLast(Remedy):
    """Weights of 2-d convolutions in torch.channels_last: a convolution lays its image out by them, and what follows
    keeps that. Outputs are given out as they would be without."""

    name = "channels_last"
    title = "lays images and convolution weights out with channels last"
    safety = "tolerance"
    place = "model"
    codes = ("BRR204",)
    by_hand = "model = model.to(memory_format=torch.channels_last)"
    unseen = (
        "weights of convolutions, their gradients and what hooks are given inside of the model lie in another order: "
        ".view() of them may be an error, .reshape() is none"
    )
    edit = BeforeTraining(
        "{model}.register_forward_hook(in_plain_layout)\n{model}.to(memory_format=torch.channels_last)", HELPER
    )

    def apply(self, seams: Seams) -> None:
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        def is_last(value: Any) -> bool:
            """Channels lie innermost, in a part of an image as well."""
            if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dim() not in (3, 4):
                return False
            return 0 < value.stride(-3) < value.stride(-1)

        def laid_out(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            has_own = any(map(is_last, tree_leaves((args, kwargs))))  # before the forward writes into them
            found = forward(*args, **kwargs)
            return found if has_own else tree_map(lambda each: each.contiguous() if is_last(each) else each, found)

        def lay_out(module: Any) -> None:
            weights = [m.weight for m in module.modules() if isinstance(m, torch.nn.Conv2d)]
            if not weights or not all(weight.is_contiguous() for weight in weights):  # or has a layout of its own
                return
            if is_functional():  # weights that are laid out in there crash torch's convolution
                seams.declined(self.name, "the model is called inside of a transform of torch.func")
                return
            module.to(memory_format=torch.channels_last)
            seams.undo(lambda: module.to(memory_format=torch.contiguous_format))
            seams.replace(module, "forward", replaced(module, laid_out))
            seams.applied(self.name, type(module).__name__)

        seams.at_model(lay_out)


REMEDY = ChannelsLast()
