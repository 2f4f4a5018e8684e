"""A model whose weights and activations are bfloat16 or float16, and whose inputs and outputs stay as they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

Model = TypeVar("Model", bound=nn.Module)


def half_precision(model: Model, dtype: torch.dtype = torch.bfloat16, keep: Collection[str] = ()) -> Model:
    """Turn float32 parameters and buffers of `model` into `dtype`, in place, and give the model back.

    The model takes float32 tensors and gives float32 ones, anywhere in its arguments and results; between, activations
    are `dtype`. Modules named in `keep`, with what they hold, stay as they are: they compute in float32 on what comes
    as `dtype`. So do modules of quantised weights. A weight that such a module shares becomes its own.
    """
    kept = [part for name, part in model.named_modules() if name in keep or _is_quantised(part)]
    stays = {id(part) for each in kept for part in each.modules()}
    for part in (part for each in kept for part in each.modules()):
        for name, own in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(own.detach(), own.requires_grad))
    for part in model.modules():
        if id(part) in stays:
            continue
        for own in part.parameters(recurse=False):
            own.data = _cast(own.data, dtype)
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, _cast(buffer, dtype))
    for part in kept:
        _between(part, torch.float32, dtype)
    if model not in kept:
        _between(model, dtype, torch.float32)
    return model


def _between(part: nn.Module, inside: torch.dtype, outside: torch.dtype) -> None:
    """Let it compute in one dtype on what comes, and is to go, in the other."""

    def before(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map(lambda each: _cast(each, inside), args), tree_map(lambda each: _cast(each, inside), kwargs)

    def after(_: nn.Module, __: Any, result: Any) -> Any:
        return tree_map(lambda each: _cast(each, outside), result)

    part.register_forward_pre_hook(before, with_kwargs=True)
    part.register_forward_hook(after)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """A float tensor of 16 or 32 bits in another dtype; anything else as it is."""
    floats = (torch.float32, torch.bfloat16, torch.float16)
    return value.to(dtype) if isinstance(value, Tensor) and value.dtype in floats else value


def _is_quantised(part: nn.Module) -> bool:
    """Whether it holds packed weights, as torch.ao's do, or tensors that only look like floats, as torchao's do."""
    own = [each.data for each in part.parameters(recurse=False)]
    return hasattr(part, "_packed_params") or any(type(each) is not Tensor for each in own)
