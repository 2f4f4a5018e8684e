"""Does a process still run, and how large is it: read in /proc, so that neither a signal nor a tracer reaches it.

Standard library only: the watched process notes when it began.
"""

from __future__ import annotations

import os
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
