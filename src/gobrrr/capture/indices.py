"""Which sample a loader is making, read off the frame of torch's fetcher while it makes it."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FrameType

UNKNOWN = -1
_NAME = "idx"
"""Of torch's loop over the indices of a batch."""


class Fetching:
    """Tells the index, UNKNOWN where no sample is being made or its index is no whole number."""

    def __init__(self) -> None:
        from torch.utils.data._utils.fetch import _MapDatasetFetcher

        self._codes = frozenset(_loops(_MapDatasetFetcher.fetch.__code__))

    def index(self, frame: FrameType) -> int:
        """The index of a frame of one of the fetcher's loops. Its locals are the fetcher's own: of the program's none
        is kept by looking at them."""
        if frame.f_code not in self._codes:
            return UNKNOWN
        found = frame.f_locals.get(_NAME)
        whole = type(found) is int or (type(found).__module__ == "numpy" and hasattr(found, "__index__"))
        index = int(found) if found is not None and whole else UNKNOWN
        return index if 0 <= index < 1 << 62 else UNKNOWN


def _loops(code: CodeType) -> Iterator[CodeType]:
    """Code whose locals have the index: a comprehension of its own before Python 3.12, the function's after."""
    if _NAME in (*code.co_varnames, *code.co_cellvars):
        yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _loops(inner)
