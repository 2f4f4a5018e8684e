"""State of a run as its journal has told it so far: fed frame by frame, in memory that does not grow with the run."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.recording.live.live_journal import Growing
from gobrrr.recording.live.series import Vitals
from gobrrr.recording.live.trend import Trend
from gobrrr.recording.model.phases import PhaseMarks
from gobrrr.recording.model.steps import CUT_SHORT, Finder, Ints, Step, by_time
from gobrrr.recording.model.warmup import doubted
from gobrrr.recording.run_folder.frames import EVENTS, RECORD, Unreadable, events_of, record_of
from gobrrr.recording.run_folder.run import Start

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
