"""Verdicts of paired blocks: how much faster, how surely, and how much more would settle it. Pure, on any clock.

A quadruple of blocks, A B B A or B A A B, has a log ratio that is free of linear drift. Within one process quadruples
are the unit (`compare`): far enough apart to be taken as independent. Two arms are processes of their own, and each
process is a little faster or slower than its next start will be; there the unit is a round, the quadruples of one fresh
pair of processes (`compare_rounds`).

The race's interval (anytime.py) stands for neither. In place of `compare` (simulated, 60 comparisons of 10 s a row) it
errs as rarely, and settles 10 % in 2 s instead of 5, but a mean feels bursts that a median does not: equal callables
under drift were equivalent in 30 % instead of 82 %, and 3 % under bursts was found in 55 % instead of 80 %. Of three
rounds it is 5.8 deviations wide, so that hardly any trial would end with the fewest starts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.trial.race.policy import POLICY

LEVEL = 0.05
"""Two-sided error of one comparison, all its looks together."""
BAND = 0.01
"""Ratios within 1 % of 1 are equivalent, in one process: what the blocks of one callable scatter by."""
PROCESS_SD = 0.01
"""Deviation of a process's log step time from other starts of the same arm up to which false verdicts stay at LEVEL;
measured: 0.6 to 1.1 % of CPU time in three programs, 14 % in a fourth (benchmarks/process_bias.py)."""
PROCESS_BAND = 0.02
"""Two arms within 2 % of each other are equivalent: twice what one start may be off. A band of 1 % would take 22 starts
of each arm, ((1.96 + 1.28) sqrt(2) PROCESS_SD / 0.01)^2, this one 6."""
RESAMPLES = 2000  # of a bootstrap; proposed: its own noise is small; how far seeds move an interval
FEWEST = 6
"""Quadruples below which the sign test cannot reach 5 %: 2 / 2^6 = 3.1 %."""
MEDIAN_LOSS = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, normal data."""


class Comparison(msgspec.Struct, frozen=True):
    """Baseline over candidate time: above 1 the candidate is faster. The unit: quadruples, or rounds of them."""

    verdict: str
    """faster, slower, equivalent or inconclusive."""
    median: float
    """Median of the quadruples; of rounds the mean of their medians."""
    low: float
    high: float
    """Its interval at `1 - level`."""
    p_value: float
    """Two-sided: the exact sign test of quadruples, Student's test of rounds."""
    level: float
    num: int
    """Units."""
    needed: int | None = None
    """For inconclusive: units that would settle it if they scatter as these do."""


def quadruple(first: float, second: float, third: float, fourth: float) -> float:
    """Log ratio of A over B from the times per step of A B B A, in their order; linear drift falls out."""
    return 0.5 * (math.log(first) + math.log(fourth) - math.log(second) - math.log(third))


def compare(logs: Sequence[float], level: float = LEVEL, band: float = BAND, seed: int = 0) -> Comparison:
    """Compare by quadruples' log ratios, at a level.

    Faster and slower need both the bootstrap interval and the sign test; equivalent needs the interval inside the band.
    """
    values = np.asarray(logs, float)
    middle = float(np.median(values)) if len(values) else 0.0
    low, high = interval(values, level, seed)
    p = sign_test(values)
    inside = math.log(1 - band) <= low and high <= math.log(1 + band)
    verdict = "inconclusive"
    if len(values) >= FEWEST:
        if inside:
            verdict = "equivalent"
        elif p <= level and low > 0:
            verdict = "faster"
        elif p <= level and high < 0:
            verdict = "slower"
    needed = units_needed(len(values), middle, (high - low) / 2, band, FEWEST) if verdict == "inconclusive" else None
    return Comparison(verdict, math.exp(middle), math.exp(low), math.exp(high), p, level, len(values), needed)


def interval(values: npt.NDArray[np.float64], level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap of the median (Efron 1979) at 1 - level; always holds the median. Same seed, same interval.

    Fewer than two values know nothing of their spread: minus to plus infinity.
    """
    if len(values) < 2:
        return -math.inf, math.inf
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    medians = np.median(values[draws], axis=1)
    low, high = np.quantile(medians, (level / 2, 1 - level / 2))
    middle = float(np.median(values))
    return min(float(low), middle), max(float(high), middle)


def sign_test(values: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Exact two-sided sign test that the median is zero; zeros are left out. 1 where nothing is left."""
    positive, negative = sum(v > 0 for v in values), sum(v < 0 for v in values)
    num, fewer = positive + negative, min(positive, negative)
    tail = sum(math.comb(num, k) for k in range(fewer + 1))
    return min(1.0, float(2 * tail) / float(2**num))


def compare_rounds(
    rounds: Sequence[Sequence[float]], level: float = LEVEL, band: float = PROCESS_BAND, process_sd: float = PROCESS_SD,
    worth: float = 0.0,
) -> Comparison:  # fmt: skip
    """Compare by rounds, at a level; each is the quadruples' log ratios of a fresh pair of processes, two at least.

    Three starts hardly tell how much starts differ, so that is taken to be `process_sd` at least; where the rounds
    differ by more, they alone say how much. Faster and slower: Student's interval lies beyond `worth`, which is zero
    where any gain is one. Equivalent: it lies inside the band.
    """
    values = [np.asarray(each, float) for each in rounds]
    middle = float(np.mean([np.median(each) for each in values])) if values else 0.0
    error, freedom = standard_error(values, process_sd)
    half = student_quantile(1 - level / 2, freedom) * error if math.isfinite(error) else math.inf
    low, high = middle - half, middle + half
    p = student_p(middle / error, freedom) if math.isfinite(error) else 1.0
    verdict = "inconclusive"
    if len(values) >= POLICY.fewest_rounds:
        if math.log(1 - band) <= low and high <= math.log(1 + band):
            verdict = "equivalent"
        elif low > worth or high < -worth:
            verdict = "faster" if low > worth else "slower"
    needed = (
        units_needed(len(values), middle, half, band, POLICY.fewest_rounds, worth)
        if verdict == "inconclusive"
        else None
    )
    return Comparison(verdict, math.exp(middle), math.exp(low), math.exp(high), p, level, len(values), needed)


def standard_error(rounds: Sequence[npt.NDArray[np.float64]], process_sd: float) -> tuple[float, float]:
    """Return the standard error of the mean of rounds' medians, and its degrees of freedom: of the blocks where the
    processes' share is given (Satterthwaite 1946), of the rounds where they differ by more. Infinite where no round has
    two quadruples."""
    num, quadruples = len(rounds), sum(map(len, rounds))
    if quadruples <= num:
        return math.inf, 1.0
    within = sum(median_variance(each) for each in rounds) / num**2
    known = 2 * process_sd**2 / num + within
    freedom = (quadruples - num) * (known / within) ** 2 if within > known * 1e-6 else math.inf
    seen = float(np.var([np.median(each) for each in rounds], ddof=1)) / num if num > 1 else 0.0
    return (math.sqrt(seen), num - 1) if seen > known else (math.sqrt(known), freedom)


def median_variance(values: npt.NDArray[np.float64]) -> float:
    """Return the variance of the median of so few values, by the bootstrap (Efron 1979) times n / (n - 1), which takes
    its bias away for two; 0 for fewer than two. The same values always give the same variance: draws are fixed."""
    num = len(values)
    if num < 2:
        return 0.0
    medians = np.median(values[_draws(num)], axis=1)
    return float(np.var(medians)) * num / (num - 1)


@functools.cache
def _draws(num: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(num).integers(0, num, (RESAMPLES // 4, num))


def student_p(t: float, freedom: float) -> float:
    """Two-sided. Wallace's approximation (1959), off by 4 % of t at 2 degrees of freedom and less above."""
    if math.isinf(freedom):
        return math.erfc(abs(t) / math.sqrt(2))
    shrink = (8 * freedom + 1) / (8 * freedom + 3)
    return math.erfc(shrink * math.sqrt(freedom * math.log1p(t * t / freedom) / 2))


def student_quantile(probability: float, freedom: float) -> float:
    """The inverse, for probabilities from one half on."""
    z = quantile(probability)
    if math.isinf(freedom):
        return z
    stretched = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(stretched**2 / freedom))


def rounds_for(effect: float, error: float, num: int, level: float = LEVEL, power: float = 0.9) -> int:
    """Rounds that find a log ratio of `effect` where `num` of them had this standard error. Normal approximation."""
    z = quantile(1 - level / 2) + quantile(power)
    return max(POLICY.fewest_rounds, math.ceil(num * (z * error / effect) ** 2))


def units_needed(num: int, middle: float, half: float, band: float, fewest: int, worth: float = 0.0) -> int | None:
    """Units after which an interval of `num` would lie beyond `worth`, or inside the band; null where nothing is
    known of it."""
    if not math.isfinite(half):
        return None
    target = max(abs(middle) - worth, band - abs(middle))
    if target <= 0:  # between the two: no number of units settles it
        return None
    return max(fewest, num + 1, math.ceil(num * (half / target) ** 2))


def quadruples_for(effect: float, scatter: float, level: float = LEVEL, power: float = 0.9) -> int:
    """Quadruples that find a log ratio of `effect` with `power`; `scatter` is the deviation of one.

    Normal approximation of the median: n = ((z + z') MEDIAN_LOSS scatter / effect)^2.
    """
    z = quantile(1 - level / 2) + quantile(power)
    return max(FEWEST, math.ceil((z * MEDIAN_LOSS * scatter / effect) ** 2))


def scatter_of(values: Sequence[float]) -> float:
    """Deviation of a pilot's log ratios: the median absolute deviation scaled to normal data, or the range of so few
    divided by what a normal sample of their number spans (Tippett 1925), whichever is larger: a pilot flatters."""
    array = np.asarray(values, float)
    if len(array) < 2:
        return 0.0
    robust = 1.4826 * float(np.median(np.abs(array - np.median(array))))
    return max(robust, float(np.ptp(array)) / _SPAN.get(len(array), 4.0))


_SPAN = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534, 7: 2.704, 8: 2.847}
"""Mean range of so many standard normal values."""


def spent(fraction: float, level: float = LEVEL) -> float:
    """Level that may be spent when `fraction` of the quadruples is in, O'Brien-Fleming type (Lan and DeMets 1983):
    2 - 2 Phi(z / sqrt(fraction))."""
    return 2.0 * (1.0 - normal(quantile(1 - level / 2) / math.sqrt(fraction))) if fraction > 0 else 0.0


def levels(looks: Sequence[float], level: float = LEVEL) -> list[float]:
    """Level of each look, at growing fractions of the quadruples. What was spent before is not spent again; taken as
    if looks were disjoint (Bonferroni), which errs on the safe side."""
    known = [spent(look, level) for look in looks]
    return [now - before for now, before in zip(known, [0.0, *known], strict=False)]


def normal(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def quantile(probability: float) -> float:
    """Its inverse."""
    return NormalDist().inv_cdf(probability)


def break_even(start_seconds: float, baseline_ns: float, candidate_ns: float) -> float | None:
    """Steps after which a start-up cost is paid back; null where the candidate saves nothing."""
    saved = baseline_ns - candidate_ns
    return max(0.0, start_seconds) * 1e9 / saved if saved > 0 else None
