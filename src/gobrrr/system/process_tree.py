"""Facts of a process and of those that it started, read from outside."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from gobrrr.system.processes import PROC

USE = ("cpu_times", "memory_info", "num_threads", "num_ctx_switches", "io_counters")
NAMED = ("cmdline", "environ", "cwd", "cpu_affinity")
"""Facts that psutil knows, not all of them on every system."""


class Reading(NamedTuple):
    """What one process has used so far, at a time; None where the system does not tell. `awake_ns`, `queued_ns`: its
    main thread on a processor, and wanting one; `switches`, `forced`: of its main thread; `read_bytes`: from disks."""

    at: float
    cpu_s: float | None = None
    rss_bytes: int = 0
    threads: int = 0
    switches: int | None = None
    forced: int | None = None
    awake_ns: int | None = None
    queued_ns: int | None = None
    read_bytes: int | None = None


def tree(root: int, without: int = 0) -> list[int]:
    """A process and those that it started, parents first, but for one of them and what that started."""
    children: dict[int, list[int]] = defaultdict(list)
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(root).children(recursive=True):  # reads parents alone of all that are there
            with contextlib.suppress(psutil.Error):
                children[process.ppid()].append(process.pid)
    found = [root]
    for pid in found:  # it grows
        found += [child for child in sorted(children[pid]) if child not in (*found, without)]
    return found


def reading(pid: int, at: float, proc: str = PROC) -> Reading:
    """A reading of what may be read; all is 0 or None of a process that has ended."""
    found = _known(pid, USE)
    cpu, memory, switches, disks = (found.get(name) for name in ("cpu_times", "memory_info", *USE[3:]))
    awake = queued = None
    with contextlib.suppress(OSError, ValueError):
        text = Path(proc, str(pid), "task", str(pid), "schedstat").read_text(encoding="ascii")
        awake, queued, _ = map(int, text.split())
    return Reading(
        at, cpu and cpu.user + cpu.system, memory.rss if memory else 0, found.get("num_threads") or 0,
        switches and switches.voluntary, switches and switches.involuntary, awake, queued, disks and disks.read_bytes,
    )  # fmt: skip


def facts(pid: int) -> dict[str, Any]:
    """NAMED of it, as far as they may be read; `environ` is as it was when the process started."""
    return {name: value for name, value in _known(pid, NAMED).items() if value is not None}


def _known(pid: int, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        return dict(psutil.Process(pid).as_dict([name for name in names if hasattr(psutil.Process, name)]))
    except psutil.Error:
        return {}


def is_over(pid: int) -> bool:
    """Say whether a process has ended, collected by its parent or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
