"""How long the program's threads were ready to run and had no core, and who had the cores that it may use.

Standard library only: the watched process reads it, once a second at most.
"""

from __future__ import annotations

from pathlib import Path

from gobrrr.recording.model import event_kinds as ev
from gobrrr.system import quiet

MOST_THREADS = 256
"""More threads than this are not asked one by one: it would take a millisecond and more."""


def cores() -> int:
    """CPUs that this process may keep busy: its affinity, cut by its group's quota."""
    from gobrrr.machine.probe.system_probe import (
        usable_cores,  # what it imports is not for a program that has just started
    )

    return usable_cores()


def busy(root: str = "/proc") -> list[tuple[int, int]]:
    """(mark, ns) of the time that the CPUs of this process's affinity were busy, and that the host took from them.

    Raises OSError, ValueError, IndexError where the system does not tell.
    """
    spent, stolen = quiet.spent(root)
    return [(ev.BUSY, spent), (ev.STOLEN, stolen)]


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
