"""All processes of an arm: its group, and what it has started into sessions of their own, which no signal to the group
reaches."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

from gobrrr.system.processes import adopt_orphans


class Family:
    """Processes of one that leads a group. Each is known by its number and the moment it began at (psutil), so that
    none is signalled that got the number of another."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._strays: set[psutil.Process] = set()

    def members(self) -> list[psutil.Process]:
        """The process and what it has started, as far as it runs. Those out of its group are remembered: when their
        parent ends nothing leads to them any more."""
        found = list(self._strays)
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(self._pid))
        for each in found.copy():
            with contextlib.suppress(psutil.Error):
                found += each.children(recursive=True)
        found = [each for each in dict.fromkeys(found) if each.is_running()]
        self._strays = set(filter(self._strayed, found))
        return found

    def known(self) -> list[int]:
        """Its number, which is that of its group, and those out of its group when it was last looked at."""
        return [self._pid, *sorted(each.pid for each in self._strays)]

    def _strayed(self, process: psutil.Process) -> bool:
        try:
            return os.getpgid(process.pid) != self._pid
        except ProcessLookupError:
            return False

    def wanting(self) -> int:
        """Threads of theirs that run or want a core; 0 where this system does not tell."""
        found = 0
        for each in self.members():
            for task in Path(f"/proc/{each.pid}/task").glob("*/stat"):
                with contextlib.suppress(OSError):  # it has ended
                    found += task.read_text().rpartition(") ")[2].startswith("R")
        return found

    def signal(self, number: int) -> None:
        """Send a signal to all of them that are known."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)
        for each in list(self._strays):
            with contextlib.suppress(psutil.Error):
                each.send_signal(number)


@contextlib.contextmanager
def adopted() -> Iterator[None]:
    """Adopt what programs leave behind meanwhile, and end it with the context; on Linux only."""
    before = set(psutil.Process().children())
    adopt_orphans(True)
    try:
        yield
    finally:
        adopt_orphans(False)
        for each in set(psutil.Process().children(recursive=True)) - before:
            with contextlib.suppress(psutil.Error):
                each.send_signal(signal.SIGKILL)
