"""What a process and its children use of the computer, read from outside."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gobrrr.system.processes import PROC


class Reading(NamedTuple):
    """What one process has used so far; None where the system does not tell. `awake_ns`, `queued_ns`: its main thread
    on a processor, and wanting one; `switches`: of its main thread, by itself and forced."""

    cpu_s: float
    rss_bytes: int
    threads: int
    switches: tuple[int, int]
    awake_ns: int | None = None
    queued_ns: int | None = None
    read_bytes: int | None = None


def tree(root: int) -> list[int]:
    """A process and those that it started, parents first."""
    import psutil

    children: dict[int, list[int]] = defaultdict(list)
    for process in psutil.process_iter(["ppid"]):
        children[process.info["ppid"] or 0].append(process.pid)
    found = [root]
    for pid in found:  # it grows
        found += [child for child in sorted(children[pid]) if child not in found]
    return found


def readings(pids: Iterable[int], proc: str = PROC) -> dict[int, Reading]:
    """A reading of each process that is there and may be read."""
    return dict(_each(pids, proc))


def _each(pids: Iterable[int], proc: str) -> Iterator[tuple[int, Reading]]:
    import psutil

    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            with process.oneshot():
                cpu, switches = process.cpu_times(), process.num_ctx_switches()
                switched = switches.voluntary, switches.involuntary
                awake, queued = _scheduled(pid, proc)
                yield (
                    pid,
                    Reading(
                        cpu.user + cpu.system, process.memory_info().rss, process.num_threads(), switched, awake,
                        queued, _read(process),
                    ),
                )  # fmt: skip


def _scheduled(pid: int, proc: str) -> tuple[int | None, int | None]:
    """ns of the main thread on a processor, and in the queue for one (Linux: schedstat)."""
    try:
        awake, queued, _ = Path(proc, str(pid), "task", str(pid), "schedstat").read_text(encoding="ascii").split()
        return int(awake), int(queued)
    except (OSError, ValueError):
        return None, None


def _read(process: Any) -> int | None:
    """Bytes from disks, not from the system's cache."""
    import psutil

    try:
        return int(process.io_counters().read_bytes)
    except (psutil.Error, AttributeError, OSError):  # macOS has none
        return None


class Facts(NamedTuple):
    """What is known of a process beside its use. `environ`: as it was when the process started."""

    command: tuple[str, ...] = ()
    environ: Mapping[str, str] = MappingProxyType({})
    folder: str = ""
    cores: int | None = None
    """That it may use."""
    drives: bool = False
    """It holds the driver of an accelerator open."""


def facts(pid: int, proc: str = PROC) -> Facts:
    """What may be read of it."""
    import psutil

    found = Facts(drives=_drives(pid, proc))
    with contextlib.suppress(psutil.Error, OSError, AttributeError):  # macOS knows no affinity
        process = psutil.Process(pid)
        found = found._replace(command=tuple(process.cmdline()))
        found = found._replace(environ=process.environ(), folder=process.cwd())
        found = found._replace(cores=len(process.cpu_affinity()))
    return found


def is_over(pid: int) -> bool:
    """Say whether a process has ended, collected by its parent or not."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _drives(pid: int, proc: str) -> bool:
    found = False
    with contextlib.suppress(OSError):
        for file in Path(proc, str(pid), "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found |= str(file.readlink()).startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/"))
    return found
