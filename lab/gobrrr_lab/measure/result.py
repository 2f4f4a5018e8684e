"""The result of an experiment: figures, rows, and the receipt of one machine."""

from __future__ import annotations

import msgspec

from gobrrr.machine.model.machine import Machine

SCHEMA = "gobrrr.lab/1"


class Figure(msgspec.Struct, frozen=True):
    """A measured value with its 95 % interval; all three are the same where nothing is drawn by chance."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Figure:
        """Make a figure that is counted, not timed: it has no interval."""
        return cls(value, value, value)


class Row(msgspec.Struct, frozen=True):
    """One point of a series or one line of a table."""

    label: str
    measured: Figure
    predicted: float | None = None
    x: float | None = None
    """Where it stands on the axis; null in a table."""
    unit: str = ""
    """Unit of both values: "ns", "FLOP/s", "B/s", "B", "%", "x" or none."""
    series: str = ""
    """Name of the curve that it belongs to, where a picture has several."""


class Found(msgspec.Struct, frozen=True):
    """Result of `measure`. `factor` is the figure of the claim, judged by the range that the experiment has named."""

    factor: Figure
    predicted: float | None = None
    """The same by the formula, from this machine's ceilings; null where there is no formula."""
    rows: tuple[Row, ...] = ()
    cause: str = ""
    """Why this machine differs from the published one, where the measurement shows it."""


class Result(msgspec.Struct, frozen=True):
    """The receipt of one experiment on one machine."""

    name: str
    number: int
    verdict: str
    """reproduced, not here, inverted, inconclusive, or cannot run here."""
    why_not: str = ""
    """Missing needs where it cannot run here; what happened where it did not end."""
    found: Found | None = None
    published: str = ""
    cpu: str = ""
    """Its name, and in brackets its widest instructions: makers and clouds give one name to many."""
    device: str = ""
    cores: int = 0
    torch: str = ""
    date: str = ""
    seconds: float = 0.0
    """Seconds that it took."""
    schema: str = SCHEMA


def cpu_of(machine: Machine) -> str:
    """As a receipt has it."""
    units = [name for name in machine.isa if name not in ("fma", "f16c")]  # neither widens a product
    return f"{machine.cpu} ({units[-1]})" if units else machine.cpu
