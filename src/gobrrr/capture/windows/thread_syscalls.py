"""In which call of the system a thread is held, and how much it has written: what Linux tells of each thread in /proc.

A thread that sleeps and one that waits for the disk both leave the processor, and so does one that wants a core which
others have. The system knows which of them it is.
"""

from __future__ import annotations

import os
import platform

from gobrrr.recording.model.event_kinds import RUNS, UNKNOWN, WAITS, WRITES
from gobrrr.system.descriptors import Held

WRITING = {
    "x86_64": frozenset(
        (1, 3, 18, 20, 26, 40, 74, 75, 76, 77, 82, 87, 162, 263, 264, 275, 277, 285, 296, 306, 316, 326, 328)
    ),
    "aarch64": frozenset((35, 38, 45, 46, 47, 57, 64, 66, 68, 70, 71, 76, 81, 82, 83, 84, 227, 267, 276, 285, 287)),
}
"""Numbers of write, fsync, their variants, sendfile, splice, truncate, fallocate, rename, unlink and close, which a
file on a network is written at (Linux: syscall_64.tbl, asm-generic/unistd.h)."""


class ThreadCalls:
    """One thread of this process. Where /proc does not tell (another system, no right), everything is unknown."""

    def __init__(self, thread: int) -> None:
        self._writing = WRITING.get(platform.machine())
        self._call = _opened(f"/proc/self/task/{thread}/syscall") if self._writing is not None else None
        self._io = _opened(f"/proc/self/task/{thread}/io")

    def kind(self) -> int:
        """Return the thread's state: RUNS (or wants a core), WRITES, WAITS (any other call, locks too) or UNKNOWN."""
        word = _read(self._call).split(b" ", 1)[0].strip()
        if not word:
            return UNKNOWN
        if word in (b"running", b"-1"):  # -1: blocked outside any call, in a page fault say
            return RUNS
        number = int(word) if word.isdigit() else -1
        return WRITES if number in (self._writing or ()) else WAITS

    def written(self) -> int:
        """Bytes that it has handed to calls that write, -1 where that is not told."""
        found = _read(self._io).partition(b"\nwchar: ")[2].split(b"\n", 1)[0]
        return int(found) if found.isdigit() else -1

    def close(self) -> None:
        """Give the files back; may be called twice."""
        for file in (self._call, self._io):
            if file is not None:
                file.close()


def _opened(path: str) -> Held | None:
    try:
        return Held(os.open(path, os.O_RDONLY))
    except OSError:
        return None


def _read(file: Held | None) -> bytes:
    try:
        return os.pread(file.fd, 512, 0) if file is not None else b""
    except OSError:  # closed, by us or by the program, or the thread is gone
        return b""
