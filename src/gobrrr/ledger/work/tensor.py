"""A tensor argument as the profiler shows it, and the rules by which results get their shape and size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from gobrrr.ledger.work.dtypes import COMPLEX, FLOATING
from gobrrr.ledger.work.model import NotCounted


class Tensor(msgspec.Struct, frozen=True):
    """A tensor argument. `distinct` counts its elements at different addresses: an expanded one has few."""

    shape: tuple[int, ...]
    category: int
    itemsize: int
    distinct: int

    @property
    def numel(self) -> int:
        """Number of elements by shape."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes to read it once."""
        return self.distinct * self.itemsize

    @property
    def madd(self) -> int:
        """FLOPs per multiply-add of its elements: 2, and 8 for complex ones (4 multiplications, 4 additions)."""
        return 8 if self.category == COMPLEX else 2


def distinct_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements at different addresses; all of them where the strides were not recorded."""
    numel = math.prod(shape)
    if len(strides) != len(shape) or not numel:
        return numel
    reached = math.prod(d for d, s in zip(shape, strides, strict=True) if s)
    span = 1 + sum((d - 1) * abs(s) for d, s in zip(shape, strides, strict=True))
    return min(reached, span)


def read(*tensors: Tensor | None) -> int:
    """Bytes to read these tensors once; absent ones cost nothing."""
    return sum(t.nbytes for t in tensors if t is not None)


def written(*tensors: Tensor | None) -> int:
    """Bytes to write tensors of these shapes and dtypes once."""
    return sum(t.numel * t.itemsize for t in tensors if t is not None)


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that these broadcast to, by the usual rule."""
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for i, dim in enumerate(reversed(shape), 1):
            if dim != 1:
                if result[-i] not in (1, dim):
                    raise NotCounted("shapes do not broadcast")
                result[-i] = dim
    return tuple(result)


def promoted(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """(category, bytes per element) of the result of mixing these tensors; 0-d ones only raise the category."""
    if not tensors:
        raise NotCounted("no tensor among the inputs")
    category = max(t.category for t in tensors)
    full = [t.itemsize for t in tensors if t.shape and t.category == category]
    return category, max(full or [t.itemsize for t in tensors if t.category == category])


def result_size(tensors: Sequence[Tensor], result: str) -> int:
    """Bytes per element of a result whose dtype is: `same` as the promoted inputs, `float` (integers become float32),
    `sum` (integers become int64), `real` (complex becomes its real part's), `bool` or `long`."""
    if result == "bool":
        return 1
    if result == "long":
        return 8
    category, itemsize = promoted(tensors)
    if category < FLOATING and result in ("float", "sum"):
        return 4 if result == "float" else 8
    return itemsize // 2 if result == "real" and category == COMPLEX else itemsize
