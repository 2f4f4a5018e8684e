"""How busy other processes keep the cores: two busy threads on a shared machine wait for each other, up to 50 times."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
CALM = 0.10
"""Share of the cores that others may have while a step is timed."""
LOOK_S = 1.0


class Neighbours:
    """Share of the cores that processes other than our children used since it was made; null where unknown."""

    def __init__(self) -> None:
        self.before, self.own = _ticks(), _children()

    def share(self) -> float | None:
        """0 to 1, over all cores."""
        after = _ticks()
        if after is None or self.before is None or after[1] <= self.before[1]:
            return None
        busy, total = after[0] - self.before[0], after[1] - self.before[1]
        return max(0.0, (busy - (_children() - self.own)) / total)


def wait(limit_s: float) -> bool:
    """Wait until others leave the cores alone, at most `limit_s` seconds; whether they do."""
    end = time.monotonic() + limit_s
    while True:
        neighbours = Neighbours()
        if neighbours.before is None:
            return True
        time.sleep(LOOK_S)
        if (neighbours.share() or 0.0) <= CALM:
            return True
        if time.monotonic() > end:
            return False


def _ticks() -> tuple[float, float] | None:
    """(busy, all) clock ticks of all cores since boot."""
    if not STAT.exists():
        return None
    fields = [float(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def _children() -> float:
    """Clock ticks of the children that have ended."""
    times = os.times()
    return (times.children_user + times.children_system) * os.sysconf("SC_CLK_TCK")
