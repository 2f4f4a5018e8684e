"""Describe an experiment before it is measured, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gobrrr.lab.measure.bench import Bench
    from gobrrr.machine.model.machine import Machine

SCHEMA = "gobrrr.lab/1"
CHAPTERS = {
    "time": "Where time goes", "products": "Matrix products", "derivatives": "Derivatives", "formats": "Number formats",
    "kernels": "Fusion and kernels", "data": "Data", "smaller": "Smaller models", "cost": "Many, and what it costs",
}  # fmt: skip
NEEDS = ("torch", "device", "compiler", "ninja", "pillow", "simplejpeg", "gloo", "energy")
"""Needs that an experiment may have: an accelerator, a C++ compiler and its build tool, a library, processes that talk,
a counter of joules."""


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


@dataclass(frozen=True)
class Experiment:
    """A claim with its source, the criterion by which it holds, and how to measure it here."""

    number: int
    chapter: str
    """A key of CHAPTERS."""
    title: str
    claim: str
    source: str
    published: str
    """The figure, with the hardware that it is from; a slip in it is told."""
    factor: str
    """Name of the judged figure: 'time of eager over time of fused'."""
    reproduced: tuple[float, float]
    """Range of the factor in which the claim holds here; written before anything is measured."""
    why: str
    """One paragraph: the mechanism, and when it does not hold."""
    measure: Callable[[Bench], Found]
    needs: tuple[str, ...] = ("torch",)
    axis: str = ""
    """Name of the rows' x, for a plot; empty: they are a table."""
    finding: tuple[str, str] | None = None
    """(program of tests/planted that has this illness, the code that `gobrrr run` must give it first)."""
    seconds: float = 20.0
    """Seconds that it takes by default; under a minute."""
    unit: str = "x"
    """Unit of the factor."""

    @property
    def inverts(self) -> bool:
        """Whether the claim says on which side of 1 the factor lies, so that it can be the other way round."""
        low, high = self.reproduced
        return self.unit == "x" and (low >= 1 or high <= 1) and math.isfinite(low)


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
