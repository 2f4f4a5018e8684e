"""One recorded call, read: which arguments are tensors, of what size, and what the plain arguments say. And the table
of formulas, which the families fill, that turn a call into its work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from gobrrr.ledger.work.tensor import SCALAR_TYPES, NotCounted, Tensor, distinct_elements, element

_NOT_TENSORS = frozenset(("", "Scalar", "ScalarList", "Int", "Double", "Bool", "Device", "String", "GenericList"))
_INTEGER = re.compile(r"-?\d+")
_FLAG = re.compile(r"[Tt]rue|[Ff]alse")
Argument = Tensor | tuple[Tensor, ...] | str | None


class Work(msgspec.Struct, frozen=True):
    """FLOPs and the least traffic of one call. A multiply-add is two FLOPs; traffic is each input read once and each
    output written once, in bytes. `kind` names the family: matmul, convolution, attention, elementwise, reduction,
    norm, softmax, copy, gather, pool, rnn, optimizer, random, sort, solve, linalg, fft, loss, view (does nothing)."""

    flops: float
    bytes: float
    kind: str
    least_flops: float | None = None
    """For causal attention: the FLOPs of the unmasked half, which is all that a kernel that skips needs; floors are of
    these. `flops` is always the full count. Null where nothing is causal."""


NOTHING = Work(0.0, 0.0, "view")


class Call(msgspec.Struct, frozen=True):
    """A call of `name` (base name: no aten::, no overload, no trailing underscore). An argument is a Tensor, a tuple of
    Tensors, the text of a plain value, or None. `opaque` are positions of lists whose members were not recorded."""

    name: str
    in_place: bool
    args: tuple[Argument, ...]
    opaque: frozenset[int] = frozenset()
    inner: tuple[tuple[int, ...], ...] = ()
    """Sizes of what ops inside this one allocated or viewed, in order."""

    def maybe(self, i: int) -> Tensor | None:
        """The tensor at position i, or None where there is none."""
        arg = self.args[i] if i < len(self.args) else None
        return arg if isinstance(arg, Tensor) else None

    def tensor(self, i: int) -> Tensor:
        """The tensor at position i; without it the call can't be priced."""
        arg = self.maybe(i)
        if arg is None:
            raise NotCounted(f"argument {i} is not a tensor")
        return arg

    def tensors(self, start: int = 0, stop: int | None = None) -> list[Tensor]:
        """The tensors among the positions start to stop, without the lists."""
        return [a for a in self.args[start:stop] if isinstance(a, Tensor)]

    def members(self, i: int) -> tuple[Tensor, ...]:
        """The tensors of the list at position i; not counted where torch left them out (over 30 of them)."""
        arg = self.args[i] if i < len(self.args) else None
        if i in self.opaque or not isinstance(arg, tuple):
            raise NotCounted(f"argument {i} is a list whose tensors were not recorded")
        return arg

    def text(self, i: int) -> str:
        """The plain value at position i as recorded; empty where there is none."""
        arg = self.args[i] if i < len(self.args) else None
        return arg if isinstance(arg, str) else ""

    def ints(self, i: int) -> list[int]:
        """The integers of a list (or one integer) at position i."""
        return [int(n) for n in _INTEGER.findall(self.text(i))]

    def sizes(self, i: int) -> list[int]:
        """The integers at position i where the answer depends on them: not counted where they were not recorded (traces
        of 2021 have no plain values)."""
        if not self.text(i):
            raise NotCounted(f"argument {i} was not recorded")
        return self.ints(i)

    def number(self, i: int, default: float | None = None) -> float:
        """The number at position i; without a default it must have been recorded."""
        text = self.text(i)
        if text and text != "None":
            return float(text)
        if default is None:
            raise NotCounted(f"argument {i} was not recorded")
        return default

    def flags(self, i: int) -> list[bool]:
        """The booleans of a list (or one) at position i."""
        return [f[0] in "Tt" for f in _FLAG.findall(self.text(i))]

    def flag(self, i: int, default: bool = False) -> bool:
        """The boolean at position i."""
        return (self.flags(i) or [default])[0]

    def dtype_size(self, i: int, default: int) -> int:
        """Bytes per element of the dtype argument at position i, or the default where it was left out."""
        found = self.ints(i)
        size = SCALAR_TYPES.get(found[0]) if len(found) == 1 else None
        return default if size is None else size


Formula = Callable[[Call], Work]
FORMULAS: dict[str, Formula] = {}


def formula(names: str | Iterable[str]) -> Callable[[Formula], Formula]:
    """Serve these base names (a string is split at blanks) with the decorated formula; a name may be served once."""

    def register(function: Formula) -> Formula:
        for name in names.split() if isinstance(names, str) else names:
            if name in FORMULAS:
                raise ValueError(f"{name} has two formulas")
            FORMULAS[name] = function
        return function

    return register


def work(kind: str, flops: float, *traffic: float) -> Work:
    """Work of `flops` FLOPs whose traffic is the sum of these bytes."""
    return Work(float(flops), float(sum(traffic)), kind)


def parse(
    name: str, shapes: Sequence[Any], dtypes: Sequence[str], concrete: Sequence[str], strides: Sequence[Any],
    list_dtype: str, inner: Sequence[tuple[int, ...]],
) -> Call:  # fmt: skip
    """Read what the profiler recorded. Raises NotCounted for a dtype or shape that makes no sense."""
    base = base_name(name)
    args: list[Argument] = []
    opaque = set()
    for i, dtype in enumerate(dtypes):
        shape: Sequence[Any] = shapes[i] if i < len(shapes) else ()
        stride: Sequence[Any] = strides[i] if i < len(strides) else ()
        nested = bool(shape) and not isinstance(shape[0], int)
        if dtype == "TensorList" or nested:
            args.append(_list(shape, stride, list_dtype))
            if not nested:
                opaque.add(i)
        elif dtype in _NOT_TENSORS:
            args.append((concrete[i] if i < len(concrete) else "") or None)
        else:
            args.append(_tensor(shape, stride, dtype))
    return Call(table_name(name), is_in_place(base), tuple(args), frozenset(opaque), tuple(inner))


def base_name(name: str) -> str:
    """Without the namespace aten:: and the overload: aten::add_.Tensor gives add_."""
    return name.removeprefix("aten::").split(".", 1)[0]


@lru_cache(1 << 14)
def table_name(name: str) -> str:
    """The name under which the table of formulas has it: aten::add_ gives add."""
    base = base_name(name)
    return base[:-1] if is_in_place(base) else base


def is_in_place(base: str) -> bool:
    """One trailing underscore, not two (__and__)."""
    return base.endswith("_") and not base.endswith("__")


def _tensor(shape: Sequence[int], strides: Sequence[int], dtype: str) -> Tensor:
    known = element(dtype)
    if known is None or any(d < 0 for d in shape):
        raise NotCounted(f"dtype {dtype!r} or shape {shape} is not known")
    category, itemsize = known
    return Tensor(tuple(shape), category, itemsize, distinct_elements(shape, strides))


def _list(shapes: Sequence[Sequence[int]], strides: Sequence[Sequence[int]], dtype: str) -> tuple[Tensor, ...]:
    aligned = strides if len(strides) == len(shapes) else [()] * len(shapes)
    return tuple(_tensor(shape, stride, dtype) for shape, stride in zip(shapes, aligned, strict=True))
