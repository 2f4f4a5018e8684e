"""Writes the gauges ten times a second into a file, in a process of its own: a driver that hangs stops nobody else."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Protocol

import msgspec

from gobrrr.machine.gauges.nvml import Nvml
from gobrrr.machine.gauges.readings import GaugedDevice, Head, Reading, Sample
from gobrrr.machine.gauges.sysfs import SYS, AmdGpu, Rapl
from gobrrr.system.processes import PROC, die_with_the_parent, stat

INTERVAL_S = 0.1
"""Between two samples: drivers renew most gauges no more often (NVML: each 20 to 100 ms)."""
MOST = 12_000
"""Samples after which the time between two doubles, and again: a day's file of one device stays below 20 MB."""
SELDOM_S = 1.0
"""Between two looks at who holds the memory: listing processes takes milliseconds."""
NO_DEVICE = "no driver of a GPU that tells its gauges (NVML, amdgpu) is here"
NO_ENERGY = "the processor's energy (RAPL) may not be read here"
NO_PACKAGE = "pip install 'gobrrr[gpu]' reads the gauges of NVIDIA's devices"


class Driver(Protocol):
    """A source of gauges of devices."""

    def devices(self) -> tuple[GaugedDevice, ...]: ...

    def read(self, ours: Set[int] | None) -> tuple[Reading, ...]: ...


def is_worth_it(dev: Path = Path("/dev"), sys_root: Path = SYS) -> bool:
    """Whether anything here may have gauges: files are looked for, no driver is asked."""
    cards = sys_root.glob("class/drm/card[0-9]*/device/gpu_busy_percent")
    return (dev / "nvidiactl").exists() or (dev / "dxg").exists() or any(cards) or bool(Rapl(sys_root))


def opened() -> tuple[list[Driver], Rapl, str]:
    """Return the drivers that answer, the processor's counter, and why what is missing is."""
    drivers: list[Driver] = []
    why = ""
    try:
        drivers.append(Nvml())
    except ImportError:
        why = NO_PACKAGE if Path("/dev/nvidiactl").exists() else NO_DEVICE
    except Exception as error:  # no driver, another version, no permission
        why = f"NVML: {str(error) or type(error).__name__}"
    amd, rapl = AmdGpu(), Rapl()
    if amd.devices():
        drivers.append(amd)
    missing = [why if not drivers else "", "" if rapl else NO_ENERGY]
    return drivers, rapl, "; ".join(filter(None, missing))


def family(root: int, proc: str = PROC) -> frozenset[int]:
    """Return the process and all that descend from it."""
    parents = {pid: int(fields[1]) for pid in _numbers(proc) if (fields := _stat(pid, proc)) is not None}
    found = {root}
    while fresh := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= fresh
    return frozenset(found)


def sample(drivers: list[Driver], rapl: Rapl, ours: Set[int] | None = None) -> Sample:
    """Read all gauges now; with process ids also who holds the memory."""
    t = time.perf_counter_ns()
    return Sample(t, tuple(each for driver in drivers for each in driver.read(ours)), rapl.joules())


def samples(drivers: list[Driver], rapl: Rapl, root: int) -> Iterator[Sample]:
    """Yield samples for ever, at once the first, then as time passes."""
    interval, begin, looked = INTERVAL_S, time.monotonic(), -SELDOM_S
    known: frozenset[int] = frozenset()
    count = 0
    while True:
        now = time.monotonic()
        ours = None
        if drivers and now - looked >= SELDOM_S:
            ours = known = known | family(root)  # one that was left behind by its parent stays the program's
            looked = now
        yield sample(drivers, rapl, ours)
        count += 1
        if count == MOST:
            interval, count = 2 * interval, 0
        begin = max(begin + interval, time.monotonic())
        time.sleep(max(0.0, begin - time.monotonic()))


def command(*file: str) -> list[str]:
    """Return the words that start a sampler for this process: into the file, or on request where none is named. Its
    working directory is not looked into for modules, as python -m would."""
    start = (
        "import os, sys; sys.path[:] = [p for p in sys.path if p and os.path.abspath(p) != os.getcwd()]; "
        "sys.path.append(sys.argv[1]); "
        "from gobrrr.machine.gauges.sampler import main; sys.exit(main(int(sys.argv[2]), *sys.argv[3:]))"
    )
    return [sys.executable, "-c", start, str(Path(__file__).resolve().parents[3]), str(os.getpid()), *file]


def main(root: int, file: str = "") -> int:
    """Write the head and samples until SIGTERM, or until the process that started this one is gone; without a file
    to stdout, a sample for each line on stdin: process ids, or null."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: the program's own end ends this
    die_with_the_parent(root)
    drivers, rapl, why = opened()
    head = Head(tuple(each for driver in drivers for each in driver.devices()), why)
    with open(file, "wb", buffering=0, opener=_private) if file else os.fdopen(1, "wb", buffering=0) as out:
        out.write(msgspec.json.encode(head) + b"\n")
        asked = (msgspec.json.decode(line, type=frozenset[int] | None) for line in sys.stdin.buffer)
        if not file:
            found: Iterator[Sample] = (sample(drivers, rapl, ours) for ours in asked)
        else:
            found = samples(drivers, rapl, root) if head.devices or rapl else iter(())
        for each in found:
            out.write(msgspec.json.encode(each) + b"\n")
    return 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _numbers(proc: str) -> list[int]:
    return [int(path.name) for path in Path(proc).iterdir() if path.name.isdecimal()]


def _stat(pid: int, proc: str) -> list[bytes] | None:
    try:
        return stat(pid, proc)
    except OSError:
        return None
