"""An interval that holds at every moment at once, so that whoever watches a race may stop it at will. Pure.

Log ratios of a pair of processes are taken as normal around mean + bias: their spread is not known, the bias is what
the two processes are off by (statistics.PROCESS_SD). For the mean plus bias the interval inverts the t-test's Bayes
factor with a normal prior on mean / spread and Haar's on the spread, a martingale that exceeds 1 / level with a chance
of level at most (Wang and Ramdas 2025, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
variance"; Ville 1939). The bias is added as a normal interval; each of the two gets half of the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from gobrrr.trial.statistics import LEVEL, PROCESS_SD, quantile

PRIOR = 25.0
"""Variance of mean / spread in the prior: a gain of 5 deviations is usual in a race. It moves the interval's width (5.8
deviations after 3 values, 2.6 after 5, 1.3 after 10 at 5 %), never its error."""
FEWEST = 3
"""Values below which the interval is infinite at any usual level."""


class Interval(NamedTuple):
    """Of a mean log ratio."""

    mean: float
    low: float
    high: float
    num: int
    error: float = math.inf
    """Standard error of the mean, the processes' share in it."""


def interval(values: Sequence[float], level: float = LEVEL, process_sd: float = PROCESS_SD) -> Interval:
    """Of the mean log ratio, over all moments at 1 - level. Infinite for fewer than FEWEST values."""
    num = len(values)
    if num < 2:
        return Interval(values[0] if num else 0.0, -math.inf, math.inf, num)
    mean, bias = fmean(values), math.sqrt(2) * process_sd
    error = math.hypot(stdev(values) / math.sqrt(num), bias)
    blocks = half_width(stdev(values), num, level / 2) if num >= FEWEST else math.inf
    half = blocks + quantile(1 - level / 4) * bias
    return Interval(mean, mean - half, mean + half, num, error)


def half_width(deviation: float, num: int, level: float) -> float:
    """Where the Bayes factor ((1 + t^2/v) / (1 + t^2/(v g)))^(num/2) / sqrt(g) reaches 1 / level, with v = num - 1 and
    g = 1 + num PRIOR; infinite where so few values cannot."""
    spread, freedom = 1 + num * PRIOR, num - 1
    factor = (spread / level**2) ** (1 / num)
    if factor >= spread:
        return math.inf
    return math.sqrt(freedom * (factor - 1) / (1 - factor / spread) / num) * deviation
