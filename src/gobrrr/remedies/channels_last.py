"""Convolutions on images laid out with their channels last."""

from __future__ import annotations

from contextlib import nullcontext
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
        from torch.utils._pytree import tree_leaves, tree_map

        def is_image(value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.dim() == 4 and value.layout == torch.strided

        def last(value: Any) -> Any:
            # Compiled code lays images out by the weights; a copy that it writes into could not be told there.
            if torch.compiler.is_compiling() or not is_image(value) or not value.is_floating_point():
                return value
            if not torch.is_inference_mode_enabled():
                return value.contiguous(memory_format=torch.channels_last)
            with torch.inference_mode(False), torch.no_grad():  # what is made in inference mode counts no writes
                return value.contiguous(memory_format=torch.channels_last)

        def plain(value: Any) -> Any:
            is_last = is_image(value) and value.is_contiguous(memory_format=torch.channels_last)
            return value.contiguous() if is_last else value

        def write_back(image: Any, copy: Any) -> None:
            """What the forward has written: into a leaf that asks for a gradient it can only have been without one."""
            with torch.no_grad() if image.is_leaf and image.requires_grad else nullcontext():
                image.copy_(copy)

        def laid_out(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            given = tree_map(last, (args, kwargs))
            before, after = tree_leaves((args, kwargs)), tree_leaves(given)
            copies = [(a, b, b._version) for a, b in zip(before, after, strict=True) if a is not b]
            found = forward(*given[0], **given[1])
            for image, copy, was in copies:
                if copy._version != was:
                    write_back(image, copy)
            has_own = any(is_image(each) and not each.is_contiguous() for each in before)
            return found if has_own else tree_map(plain, found)

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
