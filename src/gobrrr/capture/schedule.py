"""How long the program's threads were ready to run and had no core, and who had the cores that it may use.

Standard library only: the watched process reads it, once a second at most.
"""

from __future__ import annotations

import os
from pathlib import Path

from gobrrr.recording import marks as ev

MOST_THREADS = 256
"""More threads than this are not asked one by one: it would take a millisecond and more."""
_TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)


def cores() -> int:
    """CPUs on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy(root: str = "/proc") -> list[tuple[int, int]]:
    """(mark, ns) of the time that the CPUs of this process's affinity were busy, and that the host took from them.

    Raises OSError, ValueError, IndexError where the system does not tell.
    """
    with open(f"{root}/stat", "rb") as file:  # noqa: PTH123  (hot path)
        whole = file.readline().split()
        mine = _mine()
        rows = [whole] if mine is None else [row for row in map(bytes.split, file) if row and row[0] in mine]
    spent = stolen = 0
    for row in rows:
        user, nice, system, _idle, _wait, irq, soft, steal = (int(x) for x in row[1:9])
        spent += user + nice + system + irq + soft + steal
        stolen += steal
    return [(ev.BUSY, spent * _TICK_NS), (ev.STOLEN, stolen * _TICK_NS)]


def _mine() -> frozenset[bytes] | None:
    """Names of the rows that count; None where every CPU does."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    return None if len(allowed) >= (os.cpu_count() or 1) else frozenset(b"cpu%d" % number for number in allowed)


class Waited:
    """The run-queue wait of all threads, summed; asked no more once the kernel did not tell (no schedstats)."""

    def __init__(self, root: str = "/proc/self/task", every_ns: int = 1_000_000_000) -> None:
        self._root, self._every = Path(root), every_ns
        self._last = -every_ns
        self._known = True

    def marks(self, now: int) -> list[tuple[int, int]]:
        """[(mark, ns)], or nothing where it is too soon or not known."""
        if not self._known or now - self._last < self._every:
            return []
        self._last = now
        try:
            threads = list(self._root.iterdir())
            waited = [self._of(thread) for thread in threads] if len(threads) <= MOST_THREADS else []
        except (OSError, ValueError, IndexError):
            waited = []
        self._known = any(each is not None for each in waited)
        return [(ev.WAITED, sum(each or 0 for each in waited))] if self._known else []

    @staticmethod
    def _of(thread: Path) -> int | None:
        """The second field: ns on a run queue. None for a thread that has ended meanwhile."""
        try:
            return int((thread / "schedstat").read_bytes().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return None
