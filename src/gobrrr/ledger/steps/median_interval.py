"""How surely is a median known? Distribution-free."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def median_interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median of at least one value: order statistics, interpolated between the two
    pairs whose exact binomial coverage encloses `confidence` (Hettmansperger and Sheather, 1986).

    Fewer than six values (at 95 %) cannot say so much: theirs is the whole range. Steps that depend on each other make
    it too narrow, and so do two speeds with nothing between them (at least 90 % with six or more).
    """
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    cover = _coverage(n)
    wide = int(np.searchsorted(-cover, -confidence, "right")) - 1  # the narrowest pair that covers enough
    if wide < 0 or wide + 1 >= len(cover):
        return float(ordered[max(0, wide)]), float(ordered[n - 1 - max(0, wide)])
    part = (cover[wide] - confidence) / (cover[wide] - cover[wide + 1])
    depth = wide + 1
    inner = (n - depth) * part / (depth + (n - 2 * depth) * part)
    low = (1 - inner) * ordered[wide] + inner * ordered[wide + 1]
    high = (1 - inner) * ordered[n - 1 - wide] + inner * ordered[n - 2 - wide]
    return float(low), float(high)


def _coverage(n: int) -> np.ndarray:
    """Probability that the median lies between the i-th smallest and the i-th largest of n values, i from 0."""
    k = np.arange(1, max(2, (n + 1) // 2))
    logs = np.concatenate(([0.0], np.cumsum(np.log((n - k + 1) / k)))) - n * math.log(2.0)
    tails: np.ndarray = np.cumsum(np.exp(logs))
    return 1.0 - 2.0 * tails


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of two values or more, within their range; of few by Student's t, were they normal."""
    found = np.asarray(values, float)
    mean, half = float(found.mean()), student(len(found) - 1) * float(found.std(ddof=1)) / math.sqrt(len(found))
    return max(float(found.min()), mean - half), min(float(found.max()), mean + half)


def student(freedom: int) -> float:
    """Return the 97.5 % point of Student's t, within 1 % from 3 degrees of freedom on (Cornish and Fisher's expansion,
    1937)."""
    if freedom < 3:
        return (12.706, 4.303)[freedom - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
