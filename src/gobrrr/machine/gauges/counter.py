"""The energy between two moments by the counters of devices and processor; idle power in between is in it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from gobrrr.errors import GobrrrError
from gobrrr.machine.gauges import sampler
from gobrrr.machine.gauges.readings import Reading
from gobrrr.machine.gauges.sysfs import Rapl

LEAST_NS = 2_000_000_000
"""Shortest time of which an energy is told: counters move in steps of up to 0.1 s (NVML's documentation), 5 % of it."""
USED = 64 << 20
"""Bytes by which a device's memory grows where the program uses it: a context alone takes more (proposed)."""
HINT = "race for time, or run on Linux where RAPL may be read or a GPU's driver counts its energy"


class Look(NamedTuple):
    """The counters at one moment."""

    devices: tuple[Reading, ...]
    cpu_joules: float | None


class EnergyCounter:
    """Counters that are read in this process: no sampler must keep up with whoever asks."""

    def __init__(self, drivers: Sequence[sampler.Driver], rapl: Rapl) -> None:
        self._drivers, self._rapl = drivers, rapl
        self._first = self.look()

    def __bool__(self) -> bool:
        return any(each.joules is not None for each in self._first.devices) or self._first.cpu_joules is not None

    def look(self, ours: Set[int] | None = None) -> Look:
        """Read them; with process ids also which devices these hold memory of."""
        return Look(tuple(each for driver in self._drivers for each in driver.read(ours)), self._rapl.joules())

    def joules(self, since: Look, until: Look) -> float | None:
        """Return what the processor, and the devices that the processes use by the first look, took in between: where
        the driver names none of them, the devices whose memory has grown since this was made. None where a counter
        of these is not there, or did not move."""
        named = any(each.ours for each in since.devices)
        spent = [] if since.cpu_joules is None else [(until.cpu_joules or 0.0) - since.cpu_joules]
        for first, before, after in zip(self._first.devices, since.devices, until.devices, strict=True):
            if before.ours if named else (before.used or 0) - (first.used or 0) >= USED:
                spent.append((after.joules or 0.0) - (before.joules or 0.0))
        return sum(spent) if spent and min(spent) > 0 else None


def opened() -> EnergyCounter:
    """Return the counters of this machine. Raises GobrrrError where it has none."""
    drivers, rapl, why = sampler.opened()
    found = EnergyCounter(drivers, rapl)
    if not found:
        raise GobrrrError(f"energy is not measurable here: {why or 'no device counts its energy'}", HINT)
    return found
