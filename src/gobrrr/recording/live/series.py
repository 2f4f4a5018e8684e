"""Vital signs of a running process, in memory that does not grow: how they stood of late, and over the run."""

from __future__ import annotations

from collections import deque

import numpy as np

from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import Ints
from gobrrr.recording.model.vitals import MAX_SAMPLES, growth

LEAST_STEPS = 16
"""Steps below which nothing is said of growth: what one of them holds and gives back is none."""
LATE_NS = 13_000_000_000
"""ns that count as of late: a dozen readings of what is read once a second, and soon over."""
MOST_LATE = 256
"""Readings of one counter that are held, whatever a file says: one each 0.1 s is 131."""
_SIZES = (event_kinds.RSS, event_kinds.OWN, event_kinds.DEVICE)
_COUNTERS = (event_kinds.CPU, event_kinds.BUSY, event_kinds.WAITED, event_kinds.STOLEN)


class Sizes:
    """Sizes, each at its time, thinned out by half whenever they are too many."""

    def __init__(self) -> None:
        self.last: int | None = None
        self._kept: list[tuple[int, int]] = []
        self._num, self._every = 0, 1

    def add(self, t: int, value: int, alone: bool = False) -> None:
        """`value` bytes at `t` ns; `alone`: it says nothing of growth."""
        self.last = value
        if alone:
            return
        if self._num % self._every == 0:
            self._kept.append((t, value))
        self._num += 1
        if len(self._kept) > 2 * MAX_SAMPLES:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def again(self) -> None:
        """Begin anew: the readings to come have nothing to do with the earlier ones."""
        self._kept, self._num, self._every = [], 0, 1

    def growth(self, wall: float) -> float | None:
        """Bytes per step of `wall` ns; None of too few readings."""
        if not self._kept or self._kept[-1][0] - self._kept[0][0] < LEAST_STEPS * wall:
            return None
        return growth(np.array(self._kept, float).reshape(-1, 2), wall)


class Vitals:
    """Memory and cores, as the journal tells them."""

    def __init__(self) -> None:
        self.sizes: dict[int, Sizes] = {kind: Sizes() for kind in _SIZES}
        self._looking = False
        self._late: dict[int, deque[tuple[int, int]]] = {kind: deque(maxlen=MOST_LATE) for kind in _COUNTERS}

    def feed(self, events: Ints) -> None:
        """The next events. A closer look takes memory of its own: growth begins anew behind it."""
        wanted = events[np.isin(events[:, 1], (*_SIZES, *_COUNTERS, event_kinds.WINDOW_BEGIN, event_kinds.WINDOW_END))]
        for t, kind, _, value in wanted.tolist():
            if kind in (event_kinds.WINDOW_BEGIN, event_kinds.WINDOW_END):
                self._looking = kind == event_kinds.WINDOW_BEGIN
                for sizes in self.sizes.values():
                    sizes.again()
            elif kind in self.sizes:
                self.sizes[kind].add(t, value, self._looking)
            else:
                self._late[kind].append((t, value))
        self._forget()

    def _forget(self) -> None:
        """Drop what is not of late, of all counters alike; two readings of each stay where steps are longer."""
        newest = max((read[-1][0] for read in self._late.values() if read), default=0)
        for read in self._late.values():
            if read and read[-1][0] < newest - LATE_NS:
                read.clear()  # the system tells it no more
        oldest = min([newest - LATE_NS, *(read[-2][0] for read in self._late.values() if len(read) > 1)])
        for read in self._late.values():
            while read and read[0][0] < oldest:
                read.popleft()

    def rate(self, kind: int) -> float | None:
        """Increase of a counter per ns of late, over the time in which all that are known were read; None where it was
        not read twice."""
        known = [read for read in self._late.values() if len(read) > 1]
        begin, end = max((read[0][0] for read in known), default=0), min((read[-1][0] for read in known), default=0)
        read = [(t, value) for t, value in self._late[kind] if begin <= t <= end]
        took = read[-1][0] - read[0][0] if len(read) > 1 else 0
        return max(0.0, (read[-1][1] - read[0][1]) / took) if took > 0 else None
