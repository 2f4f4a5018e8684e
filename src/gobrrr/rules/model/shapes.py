"""Facts read off the names, shapes and dtypes of op groups; no thresholds, no machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import takewhile
from math import prod
from typing import TypeVar

from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.ledger.work import work_of
from gobrrr.recording.model.facts import Span

FLOATS = {"double": 8, "float": 4, "c10::BFloat16": 2, "c10::Half": 2}
"""Bytes per element of the floating dtypes, as the profiler names them."""
CEILINGS = {"double": "fp64", "float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16"}
"""The key of Machine.matmul for each of them."""
MODEL = ("forward", "loss", "backward", "other")
"""Phases whose ops are the model's: `other` because a step that was found late has no phases."""

# Position of the left factor among an op's inputs.
_FACTORS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_addmm_activation": 1}
MATMULS = frozenset(_FACTORS) | {"aten::addbmm", "aten::mv", "aten::addmv", "aten::mkldnn_linear"}
"""Products of matrices and vectors, as torch names them."""
CONVOLUTIONS = frozenset(
    {
        "aten::mkldnn_convolution",
        "aten::convolution_backward",
        "aten::_slow_conv2d_forward",
        "aten::_slow_conv2d_backward",
        "aten::slow_conv3d_forward",
        "aten::slow_conv_transpose2d",
        "aten::slow_conv_dilated2d",
        "aten::_conv_depthwise2d",
        "aten::cudnn_convolution",
        "aten::miopen_convolution",
    }
)

KEPT_WIDE = frozenset(
    f"aten::{name}{way}" for way in ("", "_backward", "_backward_data")
    for name in ("_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "pow", "exp", "sum")
)  # fmt: skip
"""Ops that autocast leaves in float32 on a GPU (torch's list of ops that it casts to float32)."""

_FACTORISED = re.compile(
    r"aten::_?(linalg_(?!vector_norm|matrix_norm|cross|norm|vecdot)|cholesky|triangular_solve|geqrf)"
)


def factorises(op: OpGroup) -> bool:
    """Say whether it factorises a matrix or solves with one: that needs the digits of fp32 or more."""
    return _FACTORISED.match(op.name) is not None


def tensors(op: OpGroup) -> list[tuple[tuple[int, ...], str]]:
    """(shape, dtype) of the inputs with at least one dimension: 0-d ones are numbers in disguise (x * 2.0)."""
    return [(shape, dtype) for shape, dtype in zip(op.shapes, op.dtypes, strict=False) if shape]


def has_dtype(op: OpGroup, dtype: str) -> bool:
    """One of its tensors (not its numbers) is of `dtype`."""
    return any(found == dtype for _, found in tensors(op))


def float_dtype(op: OpGroup) -> str | None:
    """The first floating dtype among its tensors."""
    return next((dtype for _, dtype in tensors(op) if dtype in FLOATS), None)


def num_elements(op: OpGroup) -> int:
    """Elements of its largest input."""
    return max((prod(shape) for shape in op.shapes), default=0)


def kind(op: OpGroup) -> str | None:
    """The family of work it does (matmul, elementwise, copy, view, ...); None where it is not modelled."""
    if op.name in MATMULS | CONVOLUTIONS:
        return "matmul" if op.name in MATMULS else "convolution"
    work = work_of(op.name, op.shapes, op.dtypes, op.concrete, op.strides)
    return work.kind if work else None


def factors(op: OpGroup) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of the two factors of a matrix product, None for other ops."""
    first = _FACTORS.get(op.name)
    if first is None or len(op.shapes) < first + 2:
        return None
    left, right = op.shapes[first], op.shapes[first + 1]
    return (left, right) if len(left) >= 2 and len(right) >= 2 else None


def product_dims(op: OpGroup) -> tuple[int, int, int] | None:
    """(m, k, n) of a matrix product, without its batch."""
    pair = factors(op)
    return (pair[0][-2], pair[0][-1], pair[1][-1]) if pair else None


def result_elements(op: OpGroup) -> int:
    """Elements of its result: exact for matrix products, the largest input elsewhere."""
    pair = factors(op)
    return prod(pair[0][:-1]) * pair[1][-1] if pair else num_elements(op)


def holds(op: OpGroup, elements: int) -> bool:
    """It reads or writes a tensor of as many elements; a product also where its result is one."""
    made = factors(op) is not None and result_elements(op) == elements
    return made or any(prod(shape) == elements for shape in op.shapes)


def result_bytes(op: OpGroup) -> int:
    """Bytes of its result, in its first floating dtype (4 per element where it has none)."""
    return result_elements(op) * FLOATS.get(float_dtype(op) or "float", 4)


def inside(op: OpGroup, *prefixes: str) -> bool:
    """One of the ops or annotations around it starts with one of `prefixes`."""
    return any(parent.startswith(prefixes) for parent in op.parents)


def total(ops: Iterable[OpGroup]) -> float:
    """Nanoseconds per step of all of them."""
    return sum(op.ns for op in ops)


Key = tuple[str, int]
"""File and line."""


def key(where: tuple[Span, ...]) -> Key | None:
    """File and line of the innermost user line."""
    return where[0].place if where else None


def line(op: OpGroup) -> Span | None:
    """The user's innermost line."""
    return op.where[0] if op.where else None


T = TypeVar("T")
K = TypeVar("K")


def grouped(items: Iterable[T], by: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by what `by` gives for each, in their order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def by_line(ops: Iterable[OpGroup]) -> dict[Span | None, list[OpGroup]]:
    """Groups by the user's innermost line, costliest line first."""
    return dict(sorted(grouped(ops, line).items(), key=lambda item: -total(item[1])))


def shared_lines(ops: Iterable[OpGroup]) -> tuple[Span, ...]:
    """The user lines (innermost first) that all ops lie below; empty where they share none."""
    shared: tuple[Span, ...] | None = None
    for where in {op.where for op in ops}:
        both = zip(reversed(where if shared is None else shared), reversed(where), strict=False)
        same = list(takewhile(lambda pair: pair[0].place == pair[1].place, both))
        shared = tuple(span for span, _ in reversed(same))
    return shared or ()


def costliest_line(ops: Iterable[OpGroup]) -> tuple[Span, ...]:
    """The user lines (innermost first) of the innermost line that costs most; empty where no op knows its line."""
    for span, there in by_line(ops).items():
        if span is not None:
            return max(there, key=lambda op: op.ns).where
    return ()
