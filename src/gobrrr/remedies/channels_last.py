"""Convolutions on images laid out with their channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.capture.unseen import is_transformed
from gobrrr.remedies.changed import mark
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
    """Weights of 2-d convolutions and four-dimensional inputs in torch.channels_last. Outputs are given out as they
    would be without, and what the forward writes into an input is in the program's own."""

    name = "channels_last"
    title = "lays images and convolution weights out with channels last"
    safety = "tolerance"
    place = "model"
    codes = ("BRR204",)
    by_hand = "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)"
    unseen = (
        "weights of convolutions, their gradients and what hooks are given inside of the model lie in another order: "
        ".view() of them may be an error, .reshape() is none"
    )
    edit = BeforeTraining(
        "{model}.register_forward_hook(in_plain_layout)\n{model}.to(memory_format=torch.channels_last)", HELPER
    )

    def apply(self, seams: Seams) -> None:
        import torch
        from torch.compiler import is_compiling
        from torch.utils._pytree import tree_leaves, tree_map

        def is_image(value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.dim() == 4 and value.layout == torch.strided

        def last(value: Any) -> Any:
            if is_image(value) and value.is_floating_point():
                return value.contiguous(memory_format=torch.channels_last)
            return value

        def plain(value: Any) -> Any:
            is_last = is_image(value) and value.is_contiguous(memory_format=torch.channels_last)
            return value.contiguous() if is_last else value

        def laid_out(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            given = tree_map(last, (args, kwargs))
            follows = not is_compiling() and not is_transformed()
            before, after = tree_leaves((args, kwargs)), tree_leaves(given)
            copies = [(a, b, mark(b)) for a, b in zip(before, after, strict=True) if a is not b and follows]
            found = forward(*given[0], **given[1])
            for image, copy, was in copies:
                uncounted = copy.is_inference() and not torch.equal(copy, image)
                if uncounted or mark(copy) != was:  # the forward has written into it
                    with torch.set_grad_enabled(torch.is_grad_enabled() and not image.is_leaf):
                        image.copy_(copy)
            has_own = any(is_image(each) and not each.is_contiguous() for each in before)
            return found if has_own else tree_map(plain, found)

        def lay_out(module: Any) -> None:
            weights = [m.weight for m in module.modules() if isinstance(m, torch.nn.Conv2d)]
            if not weights or not all(weight.is_contiguous() for weight in weights):  # or has a layout of its own
                return
            module.to(memory_format=torch.channels_last)
            seams.undo(lambda: module.to(memory_format=torch.contiguous_format))
            seams.replace(module, "forward", replaced(module, laid_out))
            seams.applied(self.name, type(module).__name__)

        seams.at_model(lay_out)


REMEDY = ChannelsLast()
