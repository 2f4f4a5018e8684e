"""Does a process still run, and how large is it: read in /proc, so that neither a signal nor a tracer reaches it.

Standard library only: the watched process notes when it began.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

PROC = "/proc"
STATE, MINFLT, UTIME, STIME, STARTED, RSS = 0, 7, 11, 12, 19, 21
"""Fields of /proc/PID/stat (man 5 proc), counted from behind the command's name."""
_MOST = 1 << 16
"""Bytes of a command line that are read."""
_GONE = ("Z", "X", "x")


class Process(NamedTuple):
    """One that is there. `began`: ticks since the machine's start, which with the pid names it; `began_s`: the same
    moment in Unix seconds; `rss_bytes`: resident."""

    pid: int
    began: int
    began_s: float
    rss_bytes: int


def stat(pid: int | str = "self", proc: str = PROC) -> list[bytes]:
    """The fields of /proc/PID/stat, of which STATE is the first. Raises OSError where the system does not tell."""
    with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123  (hot path)
        return file.read().rpartition(b")")[2].split()


def sizes(*names: str, proc: str = PROC) -> dict[str, int]:
    """Bytes of this process by their names in /proc/PID/status (man 5 proc), of which some may be missing. Raises
    OSError, ValueError or IndexError where the system does not tell."""
    wanted = {name.encode(): name for name in names}
    with open(f"{proc}/self/status", "rb") as file:  # noqa: PTH123  (hot path)
        lines = [line.partition(b":") for line in file.read().splitlines()]
    return {wanted[name]: int(value.split()[0]) * 1024 for name, _, value in lines if name in wanted}


def own_bytes(proc: str = PROC) -> int | None:
    """Resident bytes of this process that are no mapped file's; None where the system does not tell."""
    try:
        found = sizes("RssAnon", "RssShmem", proc=proc)
    except (OSError, ValueError, IndexError):
        return None
    return sum(found.values()) if len(found) == 2 else None


def peak_bytes(proc: str = PROC) -> int | None:
    """Resident bytes of this process at most; None where the system does not tell."""
    try:
        return sizes("VmHWM", proc=proc).get("VmHWM")
    except (OSError, ValueError, IndexError):
        return None


def began(pid: int | str = "self", proc: str = PROC) -> int | None:
    """Ticks since the machine's start at which it was started; None where the system does not tell."""
    try:
        return int(stat(pid, proc)[STARTED])
    except (OSError, ValueError, IndexError):
        return None


def can_tell(proc: str = PROC) -> bool:
    """Say whether this system shows its processes: elsewhere nothing is known of any."""
    return began(proc=proc) is not None


def find(pid: int, proc: str = PROC) -> Process | None:
    """The process of this number, unless it has ended; None where there is none."""
    try:
        fields = stat(pid, proc)
        if fields[STATE].decode("ascii", "replace") in _GONE:
            return None
        ticks = int(fields[STARTED])
        seconds = _booted(proc) + ticks / os.sysconf("SC_CLK_TCK")
        return Process(pid, ticks, seconds, int(fields[RSS]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


def command(pid: int, proc: str = PROC) -> list[str]:
    """The words it was started with; none where they cannot be read."""
    try:
        with Path(proc, str(pid), "cmdline").open("rb") as file:
            words = file.read(_MOST).split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words[:-1]]


def _booted(proc: str) -> float:
    """Unix seconds of the machine's start. Raises OSError, ValueError where the system does not tell."""
    with Path(proc, "stat").open("rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise ValueError("no btime")


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_LIBC: ctypes.CDLL | None = None
if sys.platform == "linux":
    with contextlib.suppress(OSError):
        _LIBC = ctypes.CDLL(None)


def die_with_the_parent(parent: int | None = None, starter: int = 0) -> None:
    """From now on the kernel kills this process when its parent ends, however that ends; on Linux only.

    `parent` is the parent's process id where it was known before the fork; `starter` that of who started it all, maybe
    through a shell: where it is already gone nobody waits for this process. The kernel watches the parent's *thread*
    that started this process; it keeps the wish over execve, and drops it for forked children and setuid programs.
    """
    if _LIBC is None:
        return
    parent = os.getppid() if parent is None else parent
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent or (starter and is_gone(starter)):  # it ended before the wish was made
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans(yes: bool) -> None:
    """Say whether this process becomes the parent of what its children leave behind, instead of init; on Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def is_gone(process: int) -> bool:
    """Say whether there is no process of that number, anybody's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # there, and another user's
        return False
    return False
