"""A gate's verdict from pairs of runs: an interval that may be looked at after each of them. Pure.

Pairs are of one seed each; their differences are taken as normal. Look k of MOST is made at the one-sided level
LEVEL k / MOST, so that of all looks together at most 5 % err on either side: found by simulation, and held to it by
tests/trial/test_gate_interval.py. (With the levels of Pocock 1977, one for all looks, 85 instead of 89 of 100 tests
find what is three quarters of a deviation away.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from gobrrr.guard.model.gate import ACCEPTED, REFUSED, UNDECIDED
from gobrrr.trial.statistics.paired import student_quantile

FEWEST, MOST, LEVEL = 4, 20, 0.0165
GRAIN = 1 / math.sqrt(6)
"""Deviation of a difference of two values that are rounded to a grid, in its steps: four runs may agree by chance."""


class Change(NamedTuple):
    """Change of a measure, its one-sided bounds (null: not known yet), and what that says of what is allowed."""

    change: float
    low: float | None
    high: float | None
    verdict: str
    runs_needed: int | None = None


def judged(changes: Sequence[float], allowed: float, falls: bool, grain: float = 0.0) -> Change:
    """Hold changes, one for each pair, against what is allowed; `grain`: step of the grid that they lie on."""
    num, mean = len(changes), fmean(changes)
    half = math.inf
    if num >= FEWEST:
        error = max(stdev(changes), GRAIN * grain) / math.sqrt(num)
        half = error * student_quantile(1 - LEVEL * min(num, MOST) / MOST, num - 1)
    distance = allowed - mean if falls else mean - allowed
    verdict = ACCEPTED if distance > half else REFUSED if -distance > half else UNDECIDED
    needed = None
    if verdict == UNDECIDED and math.isfinite(half) and distance:
        needed = 2 * max(1, math.ceil(num * min((half / distance) ** 2, 1e6)) - num)
    low, high = (mean - half, mean + half) if math.isfinite(half) else (None, None)
    return Change(mean, low, high, verdict, needed)


def exactly(change: float, allowed: float, falls: bool) -> Change:
    """Hold the change of a program in which seeds change nothing against what is allowed."""
    distance = allowed - change if falls else change - allowed
    return Change(change, change, change, ACCEPTED if distance >= -1e-9 * max(1.0, abs(allowed)) else REFUSED)


def grain(values: Sequence[float]) -> float:
    """Return the least distance of two different values: that of the grid which they lie on, at most."""
    return min((after - before for before, after in pairwise(sorted(set(values)))), default=0.0)
