"""A program sampled from outside, with the processes that it started: py-spy beside each, and what the system tells."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gobrrr.errors import GobrrrError, TraceError
from gobrrr.recording.live import spied
from gobrrr.recording.live.spy import SLACK_S, Spy
from gobrrr.recording.run_folder.run import Samples
from gobrrr.system import process_tree
from gobrrr.system.process_tree import Reading

MOST = 12
"""Processes that are sampled: parents first."""
RATE, ALL_RATE, LEAST_RATE = 50, 200, 10
"""Samples per second of one process, of all together, and of one at least (proposed): what they cost is in
benchmarks/results/attach-2026-11-30.md."""
SAMPLE_BYTES = 150
"""Bytes that py-spy writes for a sample of one thread (proposed: 70 of a stack of 25 frames)."""
TICK_S = 1.0
"""Seconds between looks at who is there."""


@dataclass
class Seen:
    """All that was seen. `ended`: why the look ended early; `samples`: by process and thread; `more`: processes that
    were not sampled."""

    root: int
    seconds: float = 0.0
    ended: str = ""
    samples: dict[int, dict[int, Samples]] = field(default_factory=dict)
    readings: dict[int, list[Reading]] = field(default_factory=dict)
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed: list[GobrrrError] = field(default_factory=list)
    more: int = 0


class Watch:
    """One look at a process and those that it started, as long as it may last."""

    def __init__(self, program: str, root: int, seconds: float, rate: int | None, folder: Path) -> None:
        self.seen = Seen(root)
        self._program, self._rate, self._folder = program, rate, folder
        self._seconds, self._began = seconds, time.monotonic()
        self._spies: dict[int, Spy] = {}

    def until_the_end(self) -> None:
        """Sample until the time is up, or nobody is there to be sampled."""
        self._look(self._seconds)
        while (left := self._seconds - self._passed()) > 0 and not all(each.over() for each in self._spies.values()):
            time.sleep(min(TICK_S, left))
            self._look(left - TICK_S)

    def _passed(self) -> float:
        return time.monotonic() - self._began

    def _look(self, left: float) -> None:
        """Note what is used, and begin to sample who has come."""
        tree, seen, first = process_tree.tree(self.seen.root, os.getpid()), self.seen, not self._spies
        now = self._passed()  # one time for all: they are summed by it
        rate = self._rate or max(LEAST_RATE, min(RATE, ALL_RATE // min(MOST, len(tree))))
        for pid in tree:
            seen.readings.setdefault(pid, []).append(process_tree.reading(pid, now))
            threads = max(1, seen.readings[pid][-1].threads)
            if pid not in seen.facts:
                seen.facts[pid] = process_tree.facts(pid)
            if pid not in self._spies and len(self._spies) < MOST and (first or left > TICK_S):
                fitting = int(spied.MAX_BYTES / (SAMPLE_BYTES * threads * max(1.0, left)))
                self._spies[pid] = Spy(self._program, pid, self._folder, left, max(1, min(rate, fitting)))

    def stop(self) -> Seen:
        """Return what was seen. Raises GobrrrError where nothing was."""
        seen = self.seen
        seen.seconds, seen.more = self._passed(), len(seen.readings) - len(self._spies)
        if not seen.ended and process_tree.is_over(seen.root):
            seen.ended = f"the program ended after {seen.seconds:.1f} s"
        for each in self._spies.values():
            each.end()
        for pid, each in self._spies.items():
            found = self._written(each)
            if isinstance(found, GobrrrError):
                seen.failed.append(found)
            else:
                seen.samples[pid] = found
        if not seen.samples:
            raise seen.failed[0] if seen.failed else GobrrrError(f"nothing was seen of pid {seen.root}", "try again")
        return seen

    def _written(self, spy: Spy) -> dict[int, Samples] | GobrrrError:
        """Return what one has seen, or why it has seen nothing."""
        try:
            there = spy.wrote(self.seen.seconds + SLACK_S - self._passed())
            return (spied.read(spy.file) if there else {}) or spy.error()
        except TraceError as error:
            return error

    def close(self) -> None:
        """Leave no py-spy behind, however the look ended."""
        for each in self._spies.values():
            each.kill()
