"""Which library function has the time of a user's line? From a trace's Python events: the hot path below the line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gobrrr.ledger.host.places import Places
from gobrrr.recording.model.call_tree import nest
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import Ids, Trace
from gobrrr.recording.trace_files.stack_lines import library_frames
from gobrrr.spans import Flags, Ints, elapsed, total

MOST = 0.5
"""Share of a line's time from which a function has most of it."""
PART = 0.1
"""Share from which what that function calls is named."""
DEEPEST = 1000  # frames that Python nests by default: a trace written by hand may hold a circle of any length
MAX_PARTS = 3  # callees named, largest first; proposed: they fit one line; a path whose fourth matters would settle it

Hot = tuple[tuple[str, float], ...]
"""(function, share of the line's time): the innermost one that has most of it, then those that it calls."""


@dataclass(frozen=True)
class Frames:
    """Calls of library functions, by start: `name` into `names`, the call around, the user's line that made it."""

    names: tuple[str, ...]
    name: Ints
    start: Ints
    end: Ints
    parent: Ids
    line: Ints
    """Into `lines`, -1 above all of them."""
    lines: dict[Span, int]

    @classmethod
    def of(cls, trace: Trace, threads: Sequence[int], places: Places) -> Frames:
        """All of a trace; none where it has no Python events."""
        names, calls, name = library_frames(trace, threads)
        lines: dict[Span, int] = {}
        of_place = [lines.setdefault(p.where[0], len(lines)) if p.where else -1 for p in places.places]
        line = np.array(of_place, np.int64)[places.at(calls.start)]
        nested = nest(calls.start, calls.dur).parent
        return cls(names, name, calls.start, calls.start + calls.dur, nested, line, lines)

    def hot(self, stretches: Ints, line: Span) -> Hot:
        """Below a line that ran in these disjoint (n, 2) stretches; empty where no function has most of them. What was
        called before the line came, and calls it, is not below it."""
        whole = total(stretches)
        if not whole or not len(self.name):
            return ()
        below = self.line == self.lines.get(line, -2)
        inside = np.where(below, elapsed(self.end, stretches) - elapsed(self.start, stretches), 0)
        shares = self._shares(inside, whole)
        most = [number for number, part in shares.items() if part >= MOST]
        if not most:
            return ()
        at = min(most, key=lambda number: shares[number])
        called = np.isin(self.parent, np.flatnonzero(self.name == at)) & (self.name != at)
        parts = self._shares(np.where(called, inside, 0), whole)
        told = sorted((n for n, part in parts.items() if part >= PART), key=lambda n: -parts[n])[:MAX_PARTS]
        return tuple((self.names[n], part) for n, part in ((at, shares[at]), *((n, parts[n]) for n in told)))

    def _shares(self, inside: Ints, whole: int) -> dict[int, float]:
        """By function, its outermost calls only: what calls itself is counted once."""
        own = np.where(self._again, 0, inside)
        sums = np.bincount(self.name, own.astype(float), len(self.names))
        return {number: float(sums[number]) / whole for number in np.flatnonzero(sums).tolist()}

    @cached_property
    def _again(self) -> Flags:
        """Calls inside of a call of the same function."""
        return inside_its_own(self.name, self.parent)


def inside_its_own(group: Ints, parent: Ids) -> Flags:
    """Mark rows that lie within another of their group."""
    found = np.zeros(len(group), bool)
    rows, above = np.flatnonzero(parent >= 0), parent[parent >= 0]
    for _ in range(DEEPEST):
        found[rows[group[above] == group[rows]]] = True
        above = parent[above]
        left = (above >= 0) & ~found[rows]
        rows, above = rows[left], above[left]
        if not len(rows):
            break
    return found
