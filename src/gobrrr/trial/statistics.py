"""What paired blocks say: how much faster, how surely, and how many more blocks would settle it. Pure, on any clock.

The unit is a quadruple of blocks, A B B A or B A A B: its log ratio is free of linear drift, and quadruples are far
enough apart to be taken as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

LEVEL = 0.05
"""Two-sided error of one comparison, all its looks together."""
BAND = 0.01
"""Ratios within 1 % of 1 are equivalent: what the A/A runs of such arms scatter by (0.994 to 0.996 were measured)."""
RESAMPLES = 2000
FEWEST = 6
"""Quadruples below which the sign test cannot reach 5 %: 2 / 2^6 = 3.1 %."""
MEDIAN_LOSS = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, normal data."""


class Comparison(msgspec.Struct, frozen=True):
    """Baseline over candidate time: above 1 the candidate is faster. All figures are of quadruples' ratios."""

    verdict: str
    """faster, slower, equivalent or inconclusive."""
    median: float
    low: float
    high: float
    """The interval of the median at `1 - level`."""
    p_value: float
    """Exact two-sided sign test."""
    level: float
    num: int
    """Quadruples."""
    needed: int | None = None
    """For inconclusive: quadruples that would settle it if they scatter as these do."""


def quadruple(first: float, second: float, third: float, fourth: float) -> float:
    """Log ratio of A over B from the times per step of A B B A, in their order; linear drift falls out."""
    return 0.5 * (math.log(first) + math.log(fourth) - math.log(second) - math.log(third))


def compare(logs: Sequence[float], level: float = LEVEL, band: float = BAND, seed: int = 0) -> Comparison:
    """What quadruples' log ratios say at a level.

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
    needed = quadruples_needed(values, middle, (high - low) / 2, band) if verdict == "inconclusive" else None
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


def quadruples_needed(values: npt.NDArray[np.float64], middle: float, half: float, band: float = BAND) -> int | None:
    """Quadruples after which the interval would leave zero out, or lie inside the band; null where nothing is known."""
    if len(values) < 2 or not math.isfinite(half):
        return None
    to_zero, to_band = abs(middle), band - abs(middle)
    target = max(to_zero, to_band)
    return max(FEWEST, len(values) + 1, math.ceil(len(values) * (half / target) ** 2)) if target > 0 else None


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


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of several hypotheses fall when all are tested together (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    falls = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        falls[index] = True
    return falls


def normal(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def quantile(probability: float) -> float:
    """Its inverse."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(probability)


def break_even(start_seconds: float, baseline_ns: float, candidate_ns: float) -> float | None:
    """Steps after which a start-up cost is paid back; null where the candidate saves nothing."""
    saved = baseline_ns - candidate_ns
    return max(0.0, start_seconds) * 1e9 / saved if saved > 0 else None
