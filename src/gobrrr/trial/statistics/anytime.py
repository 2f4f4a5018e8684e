"""An interval that holds at every moment at once, so that whoever watches a race may stop it at will. Pure.

A sweep gives each of its arms a log time: what the machine does to that sweep, plus what the arm takes, plus noise that
is taken as normal with one unknown deviation for all arms, or with the pair's own where that is more (five arms, one or
the reference five times as noisy: 4 of 100 intervals err at 10 %); and each process is off by something of its own
(statistics.PROCESS_SD). The difference of two arms is estimated by least squares over all sweeps. Its interval inverts
the t-test's Bayes factor with a normal prior on difference / deviation and Haar's on the sweeps, the other arms and the
deviation: a martingale that exceeds 1 / level with a chance of level at most (Wang and Ramdas 2025, "Anytime-valid
t-tests and confidence sequences for Gaussian means with unknown variance"; for a linear model Lindon, Ham, Tingley and
Bojinov 2022, "Anytime-valid linear models and regression adjusted causal inference"; Ville 1939). What processes are
off by is added as a normal interval; each of the two gets half of the error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

import numpy as np

from gobrrr.trial.statistics.paired import LEVEL, PROCESS_SD, quantile

PRIOR = 25.0
"""Variance of difference / deviation in the prior: a gain of 5 deviations is usual in a race. It moves the interval's
width (of two arms 5.8 deviations after 3 sweeps, 2.6 after 5, 1.3 after 10 at 5 %; of five arms 2.7 after 3, 1.8 after
5), never its error."""
POOLED = 0.8
"""Share of the error for the interval that counts on the noise of all arms, which is the narrower one at first. The
rest is that of the pair by itself, the narrower where another arm is far noisier: batches cut to their longest row,
with steps of 30 to 60 ms, gave the arms beside them intervals from 0.1 to 5.6."""
FEWEST = 3
"""Sweeps of both below which the interval is infinite."""
Arm = TypeVar("Arm", bound=Hashable)


class Interval(NamedTuple):
    """Interval of a mean log ratio."""

    mean: float
    low: float
    high: float
    num: int
    """Sweeps that both arms were in."""
    error: float = math.inf
    """Standard error of the mean, the processes' share in it."""


def interval(
    sweeps: Sequence[Mapping[Arm, float]], slow: Arm, fast: Arm, level: float = LEVEL, process_sd: float = PROCESS_SD
) -> Interval:
    """Return the interval of the log time of `slow` over that of `fast`, at 1 - level over all moments. Infinite for
    fewer than FEWEST sweeps of both."""
    both = [sweep for sweep in sweeps if slow in sweep and fast in sweep]
    if len(both) < 2:
        mean = both[0][slow] - both[0][fast] if both else 0.0
        return Interval(mean, -math.inf, math.inf, len(both))
    mean, variance, freedom, share = _least_squares(sweeps, slow, fast)
    logs, num = [sweep[slow] - sweep[fast] for sweep in both], len(both)
    own, bias = stdev(logs), math.sqrt(2) * process_sd
    pooled = max(math.sqrt(2 * variance), own)  # an arm may be noisier than the others
    of_all = half_width(pooled, 2 / share, freedom, POOLED * level / 2), mean, pooled / math.sqrt(2 / share)
    of_two = half_width(own, num, num - 1, (1 - POOLED) * level / 2), fmean(logs), own / math.sqrt(num)
    blocks, mean, error = of_two if of_two[0] < of_all[0] and num >= FEWEST else of_all
    half = (blocks if num >= FEWEST else math.inf) + quantile(1 - level / 4) * bias
    return Interval(mean, mean - half, mean + half, num, math.hypot(error, bias))


def half_width(deviation: float, num: float, freedom: int, level: float) -> float:
    """Where the Bayes factor ((1 + t^2/v) / (1 + t^2/(v g)))^((v + 1)/2) / sqrt(g) reaches 1 / level, with v = freedom
    and g = 1 + num PRIOR; infinite where so few values cannot. `deviation`: of one difference of two arms."""
    spread = 1 + num * PRIOR
    factor = (spread / level**2) ** (1 / (freedom + 1))
    if factor >= spread:
        return math.inf
    return math.sqrt(freedom * (factor - 1) / (1 - factor / spread) / num) * deviation


def _least_squares(sweeps: Sequence[Mapping[Arm, float]], slow: Arm, fast: Arm) -> tuple[float, float, int, float]:
    """The difference, the variance of one log time, its degrees of freedom, and the variance of the difference over
    that of one log time (2 / n for two arms that were in all n sweeps)."""
    arms = list(dict.fromkeys(arm for sweep in sweeps for arm in sweep))
    table = np.array([[sweep.get(arm, math.nan) for arm in arms] for sweep in sweeps if sweep])
    there = np.isfinite(table)
    counts = there.sum(1, keepdims=True)
    own = np.where(there, table - np.nanmean(table, 1, keepdims=True), 0.0)  # the sweep's part is out
    design = np.diag(there.sum(0)) - (there / counts).T @ there
    wanted = np.array([(arm == slow) - (arm == fast) for arm in arms], float)
    inverse = np.linalg.pinv(design, hermitian=True)
    fitted = inverse @ own.sum(0)
    freedom = int(there.sum()) - len(table) - int(np.linalg.matrix_rank(design, hermitian=True))
    left = np.where(there, own - fitted + there @ fitted[:, None] / counts, 0.0)
    return float(wanted @ fitted), float((left**2).sum()) / freedom, freedom, float(wanted @ inverse @ wanted)
