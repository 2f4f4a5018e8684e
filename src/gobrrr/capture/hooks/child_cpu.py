"""How much CPU time did the processes take that the program started, those of its loaders apart?"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from gobrrr.system import processes

_END_NS = 100_000_000
"""Longest time in ns that a worker's end takes after it was read: giving back its memory took 20 to 40 ms
(measured)."""


class Children:
    """Told when multiprocessing is about to start a process, and when a loader is about to end its workers."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.processes = self.loaders_ns = 0
        self._before = _waited_for()

    def seams(self) -> tuple[tuple[Any, str, Callable[[Any], None]], ...]:
        """(class, method, who is told of its look-up)."""
        from multiprocessing.process import BaseProcess

        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Workers

        return (BaseProcess, "start", self.starts), (Workers, "_shutdown_workers", self.loader_ends)

    def starts(self, process: Any) -> None:
        """Count it, unless it is a loader's worker. What subprocess starts (compilers, shells) does not come here."""
        module = getattr(getattr(process, "_target", None), "__module__", None)
        if os.getpid() == self.pid and not str(module).startswith("torch.utils.data."):
            self.processes += 1

    def loader_ends(self, iterator: Any) -> None:
        """Read its workers' time while they are there: afterwards nobody tells it from that of other processes."""
        if os.getpid() == self.pid and not getattr(iterator, "_shutdown", True):
            self.loaders_ns += sum(_spent(worker) + _END_NS for worker in getattr(iterator, "_workers", ()))

    def facts(self) -> dict[str, int]:
        """recording.facts.ChildFacts as a dict."""
        return {
            "processes": self.processes,
            "cpu_ns": _waited_for() - self._before,
            "loaders_ns": self.loaders_ns,
            "own_ns": time.process_time_ns(),
        }


def _waited_for() -> int:
    """CPU ns of the children that have ended and were waited for, and of theirs."""
    spent = os.times()
    return int(1e9 * (spent.children_user + spent.children_system))


def _spent(process: Any) -> int:
    """CPU ns of a process so far; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = processes.stat(process.pid)
        return (int(fields[processes.UTIME]) + int(fields[processes.STIME])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return 0
