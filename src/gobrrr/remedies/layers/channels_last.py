"""Convolutions on images laid out with their channels last."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from gobrrr.capture.hooks.transform_guard import is_functional
from gobrrr.remedies.edits.forms import BeforeTraining
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy

HELPER = """from torch.utils._pytree import tree_map


def in_plain_layout(module, given, output):
    \"\"\"What is made with channels last is given out as it would be without.\"\"\"
    return tree_map(lambda x: x.contiguous() if getattr(x, "layout", None) == torch.strided else x, output)


def lay_channels_last(model):
    \"\"\"Weights of its 2-d convolutions: a 3-d one refuses this order.\"\"\"
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    for weight in [each for module in model.modules() if isinstance(module, kinds) for each in module.parameters()]:
        if not isinstance(weight, torch.nn.UninitializedParameter) and weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)"""
"""As the remedy does it, for the user's own file."""


class ChannelsLast(Remedy):
    """Weights of 2-d convolutions in torch.channels_last: a convolution lays its image out by them, and what follows
    keeps that. Outputs are given out as they would be without."""

    name = "channels_last"
    title = "lays images and convolution weights out with channels last"
    safety = "tolerance"
    place = "model"
    by_hand = "model = model.to(memory_format=torch.channels_last)"
    unseen = (
        "weights of convolutions, their gradients and activations inside the model lie in another order: .view() of "
        "them may raise, .reshape() does not"
    )
    edit = BeforeTraining("{model}.register_forward_hook(in_plain_layout)\nlay_channels_last({model})", HELPER)

    def apply(self, seams: Seams) -> None:
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)

        def is_strided(value: Any) -> bool:
            return isinstance(value, torch.Tensor) and value.layout == torch.strided

        def is_image(value: Any) -> bool:
            """Say whether it is channels last by the program itself, or a part of such a tensor."""
            return is_strided(value) and value.dim() == 4 and 0 < value.stride(1) < value.stride(3)

        def is_scattered(value: Any) -> bool:
            return is_strided(value) and not value.is_contiguous() and 0 not in value.stride()

        def laid_out(module: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            given = tree_leaves((args, kwargs))
            has_own = any(map(is_image, given))  # before the forward writes into them
            found = forward(*args, **kwargs)
            if has_own or not any(map(is_scattered, tree_leaves(found))):
                return found
            unseen = torch.compiler.is_compiling() or is_functional()
            held = set() if unseen else set(map(memory, [*given, *kept_by(module)]))
            return tree_map(lambda each: plain(each, held), found)

        def plain(value: Any, held: set[int]) -> Any:
            """Return a value laid out as without the remedy: writes into a part of the program's own tensors must reach
            them."""
            return value.contiguous() if is_scattered(value) and (not held or memory(value) not in held) else value

        def kept_by(module: Any) -> Iterator[Any]:
            """But for what a forward has left in an attribute: that lies as our convolutions made it."""
            yield from module.parameters()
            yield from module.buffers()
            for each in module.modules():
                yield from (value for value in vars(each).values() if not is_scattered(value))

        def memory(value: Any) -> int:
            return int(value.untyped_storage().data_ptr()) if is_strided(value) else 0

        def lay_out(module: Any) -> None:
            # of a parametrized weight the parameters that it is made from
            own = {id(p): p for each in module.modules() if isinstance(each, kinds) for p in each.parameters()}
            weights = [p for p in own.values() if not isinstance(p, torch.nn.UninitializedParameter) and p.dim() == 4]
            if not weights or not all(weight.is_contiguous() for weight in weights):  # or has a layout of its own
                return
            if is_functional():  # weights that are laid out in there crash torch's convolution
                seams.declined(self.name, "the model is called inside of a transform of torch.func")
                return
            for weight in weights:
                seams.undo(functools.partial(_lay, weight, torch.contiguous_format))
                _lay(weight, torch.channels_last)
            seams.replace(module, "forward", replaced(module, laid_out))
            seams.applied(self.name, type(module).__name__)

        seams.at_model(lay_out)


def _lay(weight: Any, memory_format: Any) -> None:
    """Lay a weight out in that memory format, and its gradient with it."""
    for each in (weight, weight.grad):
        if each is not None:
            each.data = each.data.clone(memory_format=memory_format)
