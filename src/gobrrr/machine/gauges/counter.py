"""The energy between two moments by the counters of devices and processor; idle power in between is in it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Set
from typing import TypeVar

import msgspec

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.machine.gauges import sampler
from gobrrr.machine.gauges.readings import Head, Sample

LEAST_NS = 2_000_000_000
"""Shortest time of which an energy is told: counters move in steps of up to 0.1 s (NVML's documentation), 5 % of it."""
USED = 64 << 20
"""Bytes by which a device's memory grows where the program uses it: a context alone takes more (proposed)."""
PATIENCE_S = 10.0
"""How long a driver may take for an answer; loading one takes seconds."""
T = TypeVar("T")
HINT = "race for time, or run on Linux where RAPL may be read or a GPU's driver counts its energy"


class EnergyCounter:
    """Counters of devices and processor, read when asked."""

    def __init__(self, gauges: Beside) -> None:
        self.look, self.close = gauges.look, gauges.close
        self._first = self.look()

    def __bool__(self) -> bool:
        return any(each.joules is not None for each in self._first.devices) or self._first.cpu_joules is not None

    def joules(self, since: Sample, until: Sample) -> float | None:
        """Return what the processor, and the devices that the processes use by the first look, took in between: where
        the driver names none of them, the devices whose memory has grown since this was made. None where a counter
        of these is not there, or did not move."""
        named = any(each.ours for each in since.devices)
        cpu = since.cpu_joules, until.cpu_joules
        counts = [cpu] if any(each is not None for each in (self._first.cpu_joules, *cpu)) else []
        for first, before, after in zip(self._first.devices, since.devices, until.devices, strict=True):
            if before.ours if named else (before.used or 0) - (first.used or 0) >= USED:
                counts.append((before.joules, after.joules))
        spent = [b - a for a, b in counts if a is not None and b is not None]
        return sum(spent) if spent and len(spent) == len(counts) and min(spent) > 0 else None


class Beside:
    """Reads the gauges in a process of its own: a driver that hangs is given up there."""

    def __init__(self) -> None:
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(sampler.command(), bufsize=0, stdin=pipe, stdout=pipe, stderr=nowhere)
        self._rest = b""
        self.head = self._answer(Head)

    def look(self, ours: Set[int] | None = None) -> Sample:
        """Return all gauges now; with process ids also which devices these hold memory of. Raises GobrrrError where
        the driver gives no answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: its answer is missing, too
            self._process.stdin.write(msgspec.json.encode(ours) + b"\n")
        return self._answer(Sample)

    def close(self) -> None:
        """End it, as far as its driver lets it."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=1.0)  # in a driver's call it hears nothing

    def _answer(self, kind: type[T]) -> T:
        assert self._process.stdout is not None
        until = time.monotonic() + PATIENCE_S
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            ready = select.select([self._process.stdout], [], [], max(0.0, left))[0]
            more = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                self._process.kill()
                raise GobrrrError("the driver gives no answer about its energy", "race for time", UNMEASURED)
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line, type=kind)


def opened() -> EnergyCounter:
    """Return the counters of this machine. Raises GobrrrError where it has none."""
    gauges = Beside()
    found = EnergyCounter(gauges)
    if not found:
        gauges.close()
        raise GobrrrError(f"energy is not measurable here: {gauges.head.why_none or 'no device counts its energy'}",
                          HINT)  # fmt: skip
    return found
