"""Writes down dispatched ops the way torch.profiler does (name, Input Dims, Input type, Concrete Inputs), with the
traffic that their tensors really stand for: addresses are enumerated, not computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

TYPE_NAMES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int16: "short int", torch.int8: "signed char",
    torch.uint8: "unsigned char", torch.bool: "bool", torch.complex64: "c10::complex<float>",
    torch.complex128: "c10::complex<double>", torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.float8_e5m2: "c10::Float8_e5m2",
}  # fmt: skip
# c10::ScalarType: what a dtype argument is recorded as.
SCALAR_TYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.float8_e5m2: 23, torch.float8_e4m3fn: 24,
}  # fmt: skip
LONGEST_LIST = 30  # tensors; the profiler leaves out the shapes of longer lists
_ENUMERATED = 50_000  # elements; larger tensors have their addresses counted by shape


class Recorded(NamedTuple):
    """One call, as the profiler would write it."""

    name: str
    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    concrete: tuple[str, ...]
    strides: tuple[Any, ...]


class Traffic(NamedTuple):
    """Bytes that a call's tensors stand for: reads by argument position (out= left out), and all writes."""

    reads: dict[int, int]
    writes: int


def record(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recorded:
    """The fields of the profiler's event for this call, defaults filled in as the dispatcher does."""
    schema = func._schema.arguments
    rows = [_row(v, "Optional" in str(a.type)) for a, v in zip(schema, arguments(func, args, kwargs), strict=True)]
    shapes, dtypes, concrete, strides = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Recorded(func._schema.name, shapes, dtypes, concrete, strides)


def arguments(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """All arguments in the order of the schema."""
    left = func._schema.arguments[len(args) :]
    return [*args, *(kwargs.get(a.name, a.default_value if a.has_default_value() else None) for a in left)]


def _row(value: Any, optional: bool) -> tuple[Any, str, str, Any]:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), TYPE_NAMES.get(value.dtype, "?"), "", strides(value)
    if isinstance(value, (list, tuple)):
        if any(v is None or isinstance(v, torch.Tensor) for v in value):
            if optional:  # a list with gaps (indices) is recorded as nothing at all
                return (), "", "", ()
            short = value if len(value) <= LONGEST_LIST else ()
            return tuple(tuple(v.shape) for v in short), "TensorList", "", tuple(map(strides, short))
        return (), "ScalarList", "[" + ", ".join(map(str, value)) + "]", ()
    if isinstance(value, torch.dtype):
        return (), "Scalar", str(SCALAR_TYPES.get(value, 99)), ()
    if isinstance(value, (bool, int, float, complex)):
        return (), "Scalar", str(value), ()
    return (), "", "", ()


def strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides; none for sparse tensors."""
    return tuple(tensor.stride()) if tensor.layout == torch.strided else ()


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors in nested lists and tuples."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for item in tree for t in tensors(item)] if isinstance(tree, (list, tuple)) else []


def held(tensor: torch.Tensor) -> int:
    """Bytes at different addresses behind a tensor."""
    if tensor.layout != torch.strided:
        return tensor.numel() * tensor.element_size()
    if tensor.numel() > _ENUMERATED:
        return tensor[tuple(slice(None) if s else 0 for s in tensor.stride())].numel() * tensor.element_size()
    offsets = np.zeros((1,), np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = (offsets[:, None] + np.arange(size) * stride).reshape(-1)
    return len(np.unique(offsets)) * tensor.element_size()


def traffic(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Traffic:
    """What the call's tensors stand for; a result that aliases an argument is written only where it is mutated."""
    schema, reads, writes, known = func._schema, {}, 0, set()
    values = arguments(func, args, kwargs)
    for i, (argument, value) in enumerate(zip(schema.arguments, values, strict=True)):
        written = argument.alias_info is not None and argument.alias_info.is_write
        found = tensors(value)
        known |= {id(t) for t in found}
        if not (argument.is_out if hasattr(argument, "is_out") else written and argument.kwarg_only):
            reads[i] = sum(map(held, found))
        if written:
            writes += sum(map(held, found))
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    fresh = [] if views else [t for t in tensors([result]) if id(t) not in known]
    return Traffic(reads, writes + sum(t.numel() * t.element_size() for t in fresh))


class Recorder(TorchDispatchMode):
    """Hands every dispatched call to `seen(call, func, args, kwargs, result)`."""

    def __init__(self, seen: Callable[[Recorded, Any, tuple[Any, ...], dict[str, Any], Any], None]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = record(func, args, kwargs)
        result = func(*args, **kwargs)
        self.seen(call, func, args, kwargs, result)
        return result
