"""A model whose weights and activations are bfloat16 or float16, and whose inputs and outputs stay as they are."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gobrrr.layers.values import mapped

Model = TypeVar("Model", bound=nn.Module)


def half_precision(model: Model, dtype: torch.dtype = torch.bfloat16, keep: Collection[str] = ()) -> Model:
    """Turn float32 parameters and buffers of `model` into `dtype`, in place, and give the model back.

    The model takes float32 tensors and gives float32 ones, anywhere in its arguments and results, dataclasses too;
    between, each layer with weights computes in `dtype`, and a time or place that comes as a float is rounded to it.
    Modules named in `keep`, with what they hold, stay as they are: they compute in float32 on what comes as `dtype`. So
    do modules of quantised weights. A weight that such a module shares becomes its own. Tensors that are plain
    attributes, neither parameters nor buffers, stay as they are.
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
        if part is not model and any(own.dtype == dtype for own in part.parameters(recurse=False)):
            part.register_forward_pre_hook(partial(_given, dtype), with_kwargs=True)  # a forward may make float32 ones
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, _cast(buffer, dtype))
    inner = {id(part) for each in kept for part in each.modules() if part is not each}
    for part in (each for each in kept if id(each) not in inner):
        between(part, torch.float32, dtype)
    if model not in kept:
        between(model, dtype, torch.float32)
    return model


def between(part: nn.Module, inside: torch.dtype, outside: torch.dtype) -> None:
    """Let it compute in one dtype on what comes, and is to go, in the other."""
    part.register_forward_pre_hook(partial(_given, inside), with_kwargs=True)
    part.register_forward_hook(partial(_result, outside))


def _given(dtype: torch.dtype, _: nn.Module, args: Any, kwargs: Any) -> Any:
    return mapped((args, kwargs), partial(_cast, dtype=dtype))


def _result(dtype: torch.dtype, _: nn.Module, __: Any, result: Any) -> Any:
    return mapped(result, partial(_cast, dtype=dtype))


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor of 16 or 32 bits in another dtype where it is of floats."""
    return value.to(dtype) if value.dtype in (torch.float32, torch.bfloat16, torch.float16) else value


def _is_quantised(part: nn.Module) -> bool:
    """Whether it holds packed weights, as torch.ao's do, or tensors that only look like floats, as torchao's do."""
    own = [each.data for each in part.parameters(recurse=False)]
    return hasattr(part, "_packed_params") or any(type(each) is not Tensor for each in own)
