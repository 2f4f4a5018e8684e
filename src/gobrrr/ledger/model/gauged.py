"""Figures of the gauges over the steps: use, power, clocks and memory of the devices. A part of the Ledger noun."""

from __future__ import annotations

import msgspec

from gobrrr.machine.gauges.readings import Link


class DeviceGauged(msgspec.Struct, frozen=True):
    """One device over the whole loop, as its driver tells. Null is not told."""

    name: str
    busy_share: float | None = None
    """Share of the time in which a kernel ran, idle stretches between steps included."""
    sm_share: float | None = None
    """Share of its SMs that worked, on average: a device that is always busy may use few of them."""
    tensor_share: float | None = None
    """The same of their tensor cores."""
    watts: float | None = None
    limit_w: float | None = None
    default_limit_w: float | None = None
    joules_per_step: float | None = None
    clock_mhz: float | None = None
    """Median while it worked."""
    most_clock_mhz: int | None = None
    free_clock_mhz: float | None = None
    """The same at moments at which nothing held it back; null where too few were."""
    held_back: tuple[tuple[str, float], ...] = ()
    """(reason why the clock was lower than asked for, share of the time at work), the largest share first."""
    celsius: float | None = None
    """Highest."""
    memory_bytes: int | None = None
    used: int | None = None
    """Most in use by anybody."""
    ours: int | None = None
    others: int | None = None
    """Most that other processes held; what was in use before the program began, where the driver names none of ours."""
    busy_before: float | None = None
    """Share of the time in which it worked before the program could: for others."""
    link: Link | None = None
    """Widest link that was seen."""
    persistent: bool | None = None
    errors: int | None = None
    """Memory errors that came while the program ran."""


class Gauged(msgspec.Struct, frozen=True):
    """The devices that the program used, and the processor's energy."""

    devices: tuple[DeviceGauged, ...] = ()
    cpu_joules_per_step: float | None = None
    seconds: float = 0.0
    """Length of the plain steps over which energy was counted."""
    samples: int = 0
    why_none: str = ""
    """Why no device, or no energy, is told."""

    @property
    def joules_per_step(self) -> float | None:
        """Return the energy of devices and processor together, as far as counters tell; null where none does."""
        known = [each.joules_per_step for each in self.devices] + [self.cpu_joules_per_step]
        return sum(filter(None, known)) if any(each is not None for each in known) else None
