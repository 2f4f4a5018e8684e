"""Readings beside the steps: memory and CPU time, who had the cores, the garbage collector, children."""

from __future__ import annotations

import contextlib
import gc
import operator
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

from gobrrr.capture.process.config import said_in
from gobrrr.recording.model import event_kinds as ev
from gobrrr.system import processes, quiet

MOST_THREADS = 256
"""More threads than this are not asked one by one: it would take a millisecond and more."""


def vitals() -> list[tuple[int, int]]:
    """(event kind, value): resident bytes and those of no file, minor faults, CPU time of this process, busy time of
    the machine."""
    found = [(ev.CPU, process_time_ns())]
    try:
        own = processes.stat()
        found.append((ev.FAULTS, int(own[processes.MINFLT])))
        found.append((ev.RSS, int(own[processes.RSS]) * os.sysconf("SC_PAGE_SIZE")))
        own_bytes = processes.own_bytes()
        found += [(ev.OWN, own_bytes)] if own_bytes is not None else []
        found += busy()
    except (OSError, ValueError, IndexError):
        pass  # not Linux: what cannot be seen stays out of the recording
    return found


def cores() -> int:
    """CPUs that this process may keep busy: its affinity, cut by its group's quota."""
    from gobrrr.machine.probe import system_probe  # what it imports is not for a program that has just started

    return system_probe.usable_cores()


def own_cores() -> int:
    """Return the CPUs for this process, where its launcher has started several on this machine: its share."""
    return max(1, cores() // max(1, said_in("LOCAL_WORLD_SIZE") or 1))


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
            waited = [_waited(thread) for thread in threads] if len(threads) <= MOST_THREADS else []
        except (OSError, ValueError, IndexError):
            waited = []
        self._known = any(each is not None for each in waited)
        return [(ev.WAITED, sum(each or 0 for each in waited))] if self._known else []


def _waited(thread: Path) -> int | None:
    """The second field: ns on a run queue. None for a thread that has ended meanwhile."""
    try:
        return int((thread / "schedstat").read_bytes().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


_KEPT = 4 * 1024  # moments kept; proposed: enough between two readings; collections lost in recordings would settle it
MIN_COLLECTION = 20_000
"""ns: a young generation's collection is not worth an event."""
Moment = tuple[int, bool, tuple[int, int, int], tuple[int, int, int]]
"""ns; whether the collector is on; per generation how much was made, and how much is allowed."""


class Collections:
    """The collector's last runs. `install()` and `remove()` are exact opposites.

    A callback in Python would do harm: a signal that arrives while the collector works is handled at the callback's
    first instruction, and what its handler raises (KeyboardInterrupt) is printed and lost there. So the callback is
    made of C functions; it reads as max(phase, info, key=note the time) and notes it twice at each start and end. With
    the time goes why it may have come: by itself it comes only when it is on and more objects were made than allowed.
    """

    def __init__(self) -> None:
        self._seen: deque[Moment] = deque(maxlen=_KEPT)  # two of each start, two of each end, so a multiple of four
        asked = (perf_counter_ns, gc.isenabled, gc.get_count, gc.get_threshold)
        noted = map(self._seen.append, zip(*(iter(ask, None) for ask in asked), strict=False))
        comparable = map(operator.is_, noted, repeat(0))
        self._callback = partial(max, key=partial(next, comparable))

    def install(self) -> None:
        """Begin to note."""
        gc.callbacks.append(self._callback)

    def remove(self) -> None:
        """End."""
        if self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)

    def pending(self) -> bool:
        """Whether there may be something to drain."""
        return len(self._seen) >= 4

    def drain(self) -> list[tuple[int, int, bool]]:
        """(end, duration) in ns of every run since the last call that took long enough, and whether gc.collect() was
        called for it."""
        found = []
        while len(self._seen) >= 4:
            (begun, is_on, made, allowed), _, _, (ended, *_) = (self._seen.popleft() for _ in range(4))
            if ended - begun > MIN_COLLECTION:
                by_itself = is_on and 0 < allowed[0] < made[0]
                found.append((ended, ended - begun, not by_itself))
        return found


_END_NS = 100_000_000
"""Longest time in ns that a worker's end takes after it was read: giving back its memory took 20 to 40 ms
(measured)."""


POOLS = ("concurrent.futures.", "multiprocessing.", "torch.utils.data.")
"""Modules whose processes work for others."""


def is_spawned(process: Any) -> bool:
    """Say whether a process that is about to start is a new interpreter that does the program's own time, as ranks of
    torch.multiprocessing.spawn do, and can import gobrrr by itself."""
    module = str(getattr(getattr(process, "_target", None), "__module__", None))
    if getattr(process, "_start_method", None) != "spawn" or module.startswith(POOLS):
        return False
    return any(finder.find_spec("gobrrr", None) is not None for finder in sys.meta_path)  # not from what is loaded


class _Watched:
    """Becomes None in the spawned process that unpickles it, which is watched from then on."""

    def __init__(self, config: str) -> None:
        self._config = config

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        from gobrrr.capture.process.bootstrap import spawned

        return spawned, (self._config,)


class Children:
    """Told when multiprocessing is about to start a process, and when a loader is about to end its workers."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.processes = self.loaders_ns = 0
        self._before = _waited_for()
        self.watched_as = ""
        """Config that a spawned rank is watched with, as text; empty where none is to be."""

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
            if self.watched_as and is_spawned(process):
                process._config["gobrrr"] = _Watched(self.watched_as)

    def loader_ends(self, iterator: Any) -> None:
        """Read its workers' time while they are there: afterwards nobody tells it from that of other processes."""
        if os.getpid() == self.pid and not getattr(iterator, "_shutdown", True):
            for worker in getattr(iterator, "_workers", ()):
                self.loaders_ns += _END_NS
                with contextlib.suppress(OSError, ValueError, IndexError):  # the system does not tell
                    fields = processes.stat(worker.pid)
                    ticks = int(fields[processes.UTIME]) + int(fields[processes.STIME])
                    self.loaders_ns += ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")

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
