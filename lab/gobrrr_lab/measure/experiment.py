"""Describe an experiment before it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.result import Found

CHAPTERS = {
    "time": "Where time goes", "products": "Matrix products", "derivatives": "Derivatives", "formats": "Number formats",
    "kernels": "Fusion and kernels", "data": "Data", "smaller": "Smaller models", "cost": "Many, and what it costs",
}  # fmt: skip
NEEDS = ("torch", "device", "compiler", "ninja", "pillow", "simplejpeg", "gloo", "energy")
"""Needs that an experiment may have: an accelerator, a C++ compiler and its build tool, a library, processes that talk,
a counter of joules."""


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
