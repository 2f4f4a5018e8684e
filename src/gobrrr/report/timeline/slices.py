"""Events of one row of a timeline, with those that are too narrow to be seen joined: as many as can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gobrrr.recording.model.facts import Span
from gobrrr.spans import Ints

FINEST = 4000
"""Parts of the step below which an event is narrow, if there is room: four of a wide screen's pixels, for zooming."""


class Said(NamedTuple):
    """Facts of an event: its name, shapes, the user's line."""

    name: str
    shapes: str = ""
    where: Span | None = None


class Slice(NamedTuple):
    """A bar: begin and end in ns from the step's begin, for `num` events that took `busy_ns` together; the kind of the
    longest of them, and its facts."""

    start: int
    end: int
    kind: str
    num: int
    busy_ns: int
    said: Said


@dataclass(frozen=True)
class Track:
    """Events of one row that do not overlap, sorted by start, ns from the step's begin; `kind` and `tell` by row."""

    start: Ints
    end: Ints
    kind: Sequence[str]
    tell: Callable[[int], Said]

    def slices(self, width: int) -> list[Slice]:
        """Join events narrower than `width` ns that begin in the same stretch of that length into one slice."""
        if not len(self.start):
            return []
        first = self._firsts(width)
        ends = np.maximum.reduceat(self.end, first)
        busy = np.add.reduceat(self.end - self.start, first)
        counts = np.diff(np.append(first, len(self.start)))
        longest = self._longest(first)
        rows = zip(first.tolist(), ends.tolist(), busy.tolist(), counts.tolist(), longest, strict=True)
        return [
            Slice(int(self.start[row]), end, self.kind[told], count, ns, self.tell(told))
            for row, end, ns, count, told in rows
        ]

    def count(self, width: int) -> int:
        """Count the slices that slices(width) makes."""
        return len(self._firsts(width)) if len(self.start) else 0

    def _firsts(self, width: int) -> Ints:
        """The first row of each slice."""
        narrow, cell = (self.end - self.start) < width, self.start // width
        joined = narrow[1:] & (cell[1:] == cell[:-1])  # what is wide ends beyond its cell
        return np.flatnonzero(np.concatenate(([True], ~joined)))

    def _longest(self, first: Ints) -> list[int]:
        group = np.searchsorted(first, np.arange(len(self.start)), "right")
        order = np.lexsort((-np.arange(len(group)), self.end - self.start, group))
        last = np.append(first[1:], len(group)) - 1
        return [int(row) for row in order[last]]


def width_for(tracks: Sequence[Track], length: int, most: int) -> int:
    """The least ns below which events are joined, so that all tracks together are at most `most` slices."""
    width = max(1, length // FINEST)
    while sum(track.count(width) for track in tracks) > most and width < length:
        width *= 2
    return width
