"""Which sample a loader is making, read off the frame of torch's fetcher while it makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

UNKNOWN = -1
NAME = "idx"
"""Variable of torch's loop over the indices of a batch."""


class Fetching:
    """Tells the index, UNKNOWN where no sample is being made or its index is no whole number. Looked at are frames of
    torch's own functions alone: of the program's none would be the same afterwards."""

    def __init__(self) -> None:
        from torch.utils.data._utils.fetch import _MapDatasetFetcher

        self.codes = frozenset(_loops(_MapDatasetFetcher.fetch.__code__))

    def index(self, found: Iterable[Any]) -> int:
        """Return the index under NAME in frames of `codes`, innermost first: for a loader that another one's samples
        are made with, the inner one's."""
        return next((index for each in found if (index := _whole(each)) != UNKNOWN), UNKNOWN)


def _whole(found: Any) -> int:
    whole = type(found) is int or (type(found).__module__ == "numpy" and hasattr(found, "__index__"))
    index = int(found) if whole else UNKNOWN
    return index if 0 <= index < 1 << 62 else UNKNOWN


def _loops(code: CodeType) -> Iterator[CodeType]:
    """Code whose locals have the index: a comprehension of its own before Python 3.12, the function's after."""
    if NAME in (*code.co_varnames, *code.co_cellvars):
        yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _loops(inner)
