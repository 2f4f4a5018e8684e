"""Memory that a process shares with none: what forked workers add, page by page, as they write to what they share."""

from __future__ import annotations

import time
from pathlib import Path

_ROLLUP = Path("/proc/self/smaps_rollup")
_PRIVATE = ("Private_Clean:", "Private_Dirty:")
EVERY_NS = 150_000_000  # ns between readings, at least; proposed: shows a rise; growth missed would settle it
COST = 0.05
"""Share of the time so far that reading may take of a core: the kernel walks all pages, 5 ms for each 500 MB. It is the
window's, whose steps are no plain ones."""


def private_bytes() -> int | None:
    """Return the private bytes of this process; None where the kernel does not tell (Linux since 4.14 does)."""
    try:
        lines = _ROLLUP.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in lines if line.startswith(_PRIVATE)]
    return sum(kib) * 1024 if kib else None


class Readings:
    """Private bytes now and then, each with how many batches had been made by then."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self._began = self._due = time.perf_counter_ns()
        self._cost = 0

    def look(self, batches: int) -> None:
        """Read once more, if it is time and the readings so far were cheap enough."""
        now = time.perf_counter_ns()
        if now < self._due or self._cost > COST * (now - self._began):
            return
        before = time.thread_time_ns()
        found = private_bytes()
        if found is not None:
            self.rows.append((batches, found))
        self._cost += time.thread_time_ns() - before
        self._due = now + EVERY_NS
