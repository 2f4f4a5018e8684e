"""Samples of all kinds that are kept, drawn by Hypothesis, and when two of them are the same."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import torch
from hypothesis import strategies as st

_DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?"),
    arrays.complex_number_dtypes(),
    arrays.unicode_string_dtypes(min_len=1, max_len=4),
    arrays.byte_string_dtypes(min_len=1, max_len=4),
    arrays.datetime64_dtypes(),
    arrays.timedelta64_dtypes(),
)
_SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
_TORCH = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]


@st.composite
def _arrays(draw: st.DrawFn) -> Any:
    value = draw(arrays.arrays(draw(_DTYPES), draw(_SHAPES)))
    return np.array(value).transpose(draw(st.permutations(range(value.ndim))))


@st.composite
def _tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(_SHAPES)
    value = torch.tensor(draw(arrays.arrays(np.uint8, shape))).to(draw(st.sampled_from(_TORCH)))
    return value.permute(draw(st.permutations(range(value.dim()))))


def _scalar() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(), st.booleans(), st.integers(), st.integers(-(2**80), 2**80), st.floats(), st.binary(),
        st.text(st.characters()), st.text(st.characters(categories=["Cs", "Ll"])), st.complex_numbers(),
        _DTYPES.flatmap(arrays.from_dtype),
    )  # fmt: skip


_KEYS = st.one_of(st.text(), st.integers(-(2**63), 2**64 - 1), st.binary(), st.none())
samples = st.recursive(
    st.one_of(_scalar(), _arrays(), _tensors()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(_KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Of one type and one value, bit for bit; not by way of the code that is tested."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(a, b) for a, b in zip(one.values(), other.values(), strict=True))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return (
            alike and repr(one.tolist()) == repr(other.tolist()) and (not one.numel() or _steps(one) == _steps(other))
        )
    if isinstance(one, np.ndarray):
        alike = (one.dtype.str, one.shape) == (other.dtype.str, other.shape)
        return alike and one.tobytes() == other.tobytes() and (not one.size or _steps(one) == _steps(other))
    if isinstance(one, np.generic):
        return bool(one.dtype == other.dtype) and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
    return repr(one) == repr(other)


def _steps(value: Any) -> list[int]:
    """Strides of the axes that have more than one element."""
    strides = value.stride() if isinstance(value, torch.Tensor) else value.strides
    return [step for step, size in zip(strides, value.shape, strict=True) if size > 1]
