"""A tensor argument as the profiler shows it: sizes of its dtypes, by the C++ type names that torch.profiler writes and
by ScalarType numbers among the arguments; and the rules by which results get their shape and size."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec

BOOL, INTEGER, FLOATING, COMPLEX = range(4)

_SIZES: dict[str, tuple[int, int]] = {
    name: (category, size)
    for category, size, names in (
        (BOOL, 1, ("bool",)),
        (INTEGER, 1, ("unsigned char", "signed char", "char", "qint8", "quint8", "byte")),
        (INTEGER, 2, ("short", "short int", "unsigned short", "short unsigned int")),
        (INTEGER, 4, ("int", "unsigned int", "qint32")),
        (INTEGER, 8, ("long", "long int", "long long", "unsigned long", "long unsigned int", "longint")),
        (FLOATING, 2, ("half", "bfloat16")),
        (FLOATING, 4, ("float",)),
        (FLOATING, 8, ("double",)),
        (COMPLEX, 4, ("complex<half>",)),
        (COMPLEX, 8, ("complex<float>", "complexfloat")),
        (COMPLEX, 16, ("complex<double>", "complexdouble")),
    )
    for name in names
}
"""Spellings of a tensor type among them, without its device: "CUDAHalfType" is half, "CPULongIntType" longint."""
# Bytes per element by c10::ScalarType, as a dtype argument is recorded ("6" is float32); gaps are types without a fixed
# element size.
SCALAR_TYPES = {
    **{0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 8: 4, 9: 8, 10: 16, 11: 1, 12: 1, 13: 1, 14: 4, 15: 2},
    **{23: 1, 24: 1, 25: 1, 26: 1, 27: 2, 28: 4, 29: 8, 44: 1},
}
_WRAPPING = re.compile(r"^(cuda|cpu|xpu|hip|mps)(?=[a-z])|type$|tensor$")


class NotCounted(Exception):
    """Raised inside a formula when the call does not say enough; `work_of` then answers None, never zero."""


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


def element(name: str) -> tuple[int, int] | None:
    """(category, bytes per element) of a recorded dtype, device-typed spellings included; None where it is not one."""
    plain = name.replace("c10::", "").replace("at::", "").replace("torch.cuda.", "").replace("torch.", "")
    plain = plain.strip().lower()
    if plain.startswith("float8"):
        return FLOATING, 1
    return _SIZES.get(plain) or _SIZES.get(_WRAPPING.sub("", _WRAPPING.sub("", plain)))
