"""State of a run as its journal has told it so far: fed frame by frame, in memory that does not grow with the run."""

from __future__ import annotations

import math
from collections import Counter, deque
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gobrrr.recording.live.live_journal import Growing
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.phases import PhaseMarks
from gobrrr.recording.model.steps import CUT_SHORT, Finder, Step, by_time
from gobrrr.recording.model.vitals import MAX_SAMPLES, growth
from gobrrr.recording.model.warmup import doubted, median
from gobrrr.recording.run_folder.journal import Unreadable, events_of, record_of
from gobrrr.recording.run_folder.run import Start
from gobrrr.spans import Ints
from gobrrr.words import EVENTS, RECORD

LATE = 32
"""Steps that are 'now': as many as a stretch that is watched between two rests."""
MOST_LOOPS = 64  # loops of a run; proposed: bounds memory; a program that has more settles it
MOST_NOTES = 8  # different notes; proposed: as many as a user reads; runs with more settle it


class LoopSoFar:
    """One loop. `late`: its last steps that count; `seen`: its last that were watched, too."""

    def __init__(self, kind: int = 0) -> None:
        self.kind = kind
        self.num = self.total = self._first = self._last = 0
        self.trend = Trend()
        self.late: deque[int] = deque(maxlen=LATE)
        self.seen: deque[Step] = deque(maxlen=LATE)

    def add(self, step: Step) -> None:
        """Its next step."""
        if step.wall <= 0:
            return  # no clock of ours runs backwards: a damaged file
        self.num += 1
        self.total += step.wall
        self._first, self._last = self._first or step.start, step.end
        if step.plain or step.rests:
            self.trend.add(step.wall)
            self.late.append(step.wall)
        if step.plain:
            self.seen.append(step)

    @property
    def span(self) -> int:
        """ns from its first step to its last."""
        return self._last - self._first

    @property
    def usual(self) -> list[Step]:
        """Return the middle half, by length, of the last watched steps: one that a checkpoint or another process
        made long does not show where a step's time goes."""
        by_length = sorted(self.seen, key=lambda step: step.wall)
        kept = by_length[len(by_length) // 4 : len(by_length) - len(by_length) // 4]
        return sorted(kept, key=lambda step: step.start)


class Watched:
    """One process, by its journal."""

    def __init__(self, path: Path) -> None:
        self.journal = Growing(path)
        self._begin()

    def _begin(self) -> None:
        self.start = Start()
        self.started = False
        self.finder = Finder()
        self.loops: dict[tuple[int, int], LoopSoFar] = {}
        self.phases, self.vitals = PhaseMarks(), Vitals()
        self.facts: dict[str, Any] = {}
        self.ended: str | None = None
        self.notes: list[str] = []
        self.last_ns = 0

    def look(self, most: int) -> None:
        """Take in what was written since, some `most` bytes of it. Raises OSError where the journal is gone."""
        for kind, payload in self.journal.look(most):
            if kind == EVENTS:
                self._events(events_of(payload))
            elif kind == RECORD:
                self._record(payload)
            else:
                self._begin()

    @property
    def main(self) -> LoopSoFar | None:
        """The loop that takes the time, as recording.steps.find_loops() has it."""
        return next(iter(by_time(self.loops.values(), cut_short=self.ended in CUT_SHORT)), None)

    def _events(self, events: Ints) -> None:
        for key, step in self.finder.feed(events):
            if key in self.loops or len(self.loops) < MOST_LOOPS:
                self.loops.setdefault(key, LoopSoFar(key[0])).add(step)
        self.phases.feed(events)
        self.vitals.feed(events)
        self.last_ns = max(self.last_ns, int(events[:, 0].max(initial=0)))

    def _record(self, payload: bytes) -> None:
        """One JSON object; those of closer looks say nothing here."""
        try:
            record = record_of(payload) if payload else {}
        except Unreadable:
            return self._note("a record cannot be read")
        kind = record.get("type")
        if kind == "start":
            self._started(record)
        elif kind == "facts":
            self.facts, self.start = record, self.start.known_by([record])
            self.finder.settle = max(self.finder.settle, doubted([record]))
        elif kind == "end":
            self.ended = str(record.get("reason"))
        elif kind == "failed":
            self._note(f"watching failed inside gobrrr: {record.get('error')}")
        elif kind == "note":
            self._note(str(record.get("text")))

    def _started(self, record: dict[str, Any]) -> None:
        try:
            start = msgspec.convert(record, Start)
        except msgspec.ValidationError as error:
            return self._note(f"how it began cannot be read: {error}")
        if not all(abs(number or 0) < 1 << 62 for number in (*start.clock, start.pid, start.began, start.rank)):
            return self._note("how it began cannot be read: it holds a number that is none of ours")
        self.start, self.started = start, True

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text)


_FINENESS = 1 / math.log(1.01)
"""Lengths are counted in classes of 1 %: their middle is wrong by half of that at most."""
BINS = 32
"""Pieces of the run that are told apart, and up to twice as many."""
SAMPLE = 64
"""Steps of a piece whose median stands for it."""
QUARTERS = 8
"""Pieces below which nothing is said of a trend."""


class Trend:
    """The median of all steps, and of equal pieces of the run in their order."""

    def __init__(self) -> None:
        self.num = 0
        self._classes: Counter[int] = Counter()
        self._done: list[float] = []
        self._open: list[int] = []
        self._size, self._filled = 1, 0

    def add(self, wall: int) -> None:
        """A step of `wall` ns has ended."""
        self.num += 1
        self._classes[math.floor(math.log(max(1, wall)) * _FINENESS)] += 1
        if self._filled % max(1, self._size // SAMPLE) == 0:
            self._open.append(wall)
        self._filled += 1
        if self._filled == self._size:
            self._close()

    def _close(self) -> None:
        self._done.append(median(self._open))
        self._open, self._filled = [], 0
        if len(self._done) == 2 * BINS:
            self._done = [(a + b) / 2 for a, b in zip(self._done[::2], self._done[1::2], strict=True)]
            self._size *= 2

    @property
    def median(self) -> float | None:
        """ns, within half a percent; None before the first step."""
        left = (self.num + 1) // 2
        for number in sorted(self._classes):
            left -= self._classes[number]
            if left <= 0:
                return math.exp((number + 0.5) / _FINENESS)
        return None

    @property
    def history(self) -> tuple[float, ...]:
        """ns: medians of equal pieces of the run, at most 63 of them, the first that of the first steps."""
        return tuple(self._done)

    @property
    def change(self) -> float | None:
        """Share by which the last quarter of the run is longer than the first; None of too short a run. The first piece
        is left out: its steps warm up."""
        told = self._done[1:]
        if len(told) < QUARTERS:
            return None
        quarter = len(told) // 4
        return median(told[-quarter:]) / median(told[:quarter]) - 1


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
