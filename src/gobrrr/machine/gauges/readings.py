"""One look at the gauges, and what never changes of them: data that a file holds. Null is not told by the driver."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""A file may hold numbers of any size."""
POWER, THERMAL, BRAKE = "power cap", "heat", "power brake"
"""Reasons why a clock is lower than asked for: the board's power limit, its temperature, the supply."""
NO_ANSWER = "the driver gave no answer"


class Link(msgspec.Struct, frozen=True):
    """A PCIe link as it is, and as both ends could have it."""

    generation: Count
    width: Count
    most_generation: Count
    most_width: Count


class GaugedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device as its driver describes it."""

    name: str
    memory_bytes: Count | None = None
    limit_w: Amount | None = None
    """Power limit in force."""
    default_limit_w: Amount | None = None
    most_clock_mhz: Count | None = None
    persistent: bool | None = None
    """Whether the driver stays loaded where nobody uses the device."""


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """The gauges of one device at one moment."""

    busy: Amount | None = None
    """Share of the last sampling period in which a kernel ran, as the driver has it."""
    sm: Amount | None = None
    """Share of its SMs that worked since the last look: a device that is busy may use few of them."""
    tensor: Amount | None = None
    """The same of their tensor cores."""
    used: Count | None = None
    """Bytes of its memory in use by anybody."""
    ours: Count | None = None
    """Bytes that the program's processes hold; null where the driver names no processes of ours."""
    others: Count | None = None
    """Bytes that other processes hold."""
    watts: Amount | None = None
    joules: Amount | None = None
    """The energy counter, since the driver was loaded."""
    clock_mhz: Count | None = None
    why: tuple[str, ...] = ()
    """Reasons why its clock is lower than asked for."""
    celsius: Count | None = None
    link: Link | None = None
    errors: Count | None = None
    """Memory errors that ECC could not correct, since the driver was loaded."""


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """All gauges at one moment. `t`: steady ns."""

    t: Count
    devices: tuple[Reading, ...] = ()
    cpu_joules: Amount | None = None
    """Energy counter of the processor's packages."""


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a file of samples."""

    devices: tuple[GaugedDevice, ...] = ()
    why_none: str = ""
    """Why no device, or no energy, is measured."""
