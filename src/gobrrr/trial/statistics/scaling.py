"""How a step's time and peak grow with its batch: a line through what was measured, its knee, and what it predicts.

Time and peak of a batch of n are taken for a fixed part and a part per sample (Amdahl's law of batching): a + b n; the
peak over another setting may grow with its square too, as attention that is written out does with the length. Pure.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

LEAST_SPREAD = 0.02
"""Share of a prediction that its interval is wide on either side at least (proposed: peaks of starts differ by 0.4 to
1.8 %, process medians by as much)."""
DOUBLING = 0.10
"""Growth of the step below which a batch of twice the size is nearly free (the course's question)."""
STRAIGHT, CURVED = ((0, 1), (1,), (0,)), ((0, 2), (0, 1, 2), (1, 2))
"""Powers of n that a line has parts of."""


class Line(msgspec.Struct, frozen=True):
    """fixed + each x n + squared x n^2, none below 0. `spread`: standard deviation of the points' relative distance;
    `reach`: the largest n among them."""

    fixed: float
    each: float
    spread: float = 0.0
    reach: float = 0.0
    squared: float = 0.0

    def at(self, n: float) -> float:
        """Return the value for n."""
        return self.fixed + self.each * n + self.squared * n * n

    def around(self, n: float) -> tuple[float, float]:
        """Return a low and a high value for n: two deviations on either side, beyond the points as much more as it is
        further away."""
        wide = self._wide() * max(1.0, n / self.reach if self.reach else 1.0)
        return max(0.0, self.at(n) - wide), self.at(n) + wide

    def largest(self, most: float) -> int | None:
        """Return the largest n whose high value is at most `most`; None where it grows with none."""
        if self.each <= 0 and self.squared <= 0:
            return None
        n = self._root(most - self.fixed, self._wide() / self.reach if self.reach else 0.0)
        return max(0, math.floor(n if n > self.reach else self._root(most - self.fixed - self._wide(), 0.0)))

    def scaled(self, factor: float, fixed: float) -> Line:
        """Return the line whose growing parts are `factor` times as large, with another fixed part."""
        return msgspec.structs.replace(self, fixed=fixed, each=self.each * factor, squared=self.squared * factor)

    def _root(self, left: float, more: float) -> float:
        """The n from which (each + more) n + squared n^2 is more than what is left."""
        each = self.each + more
        return 2 * left / (each + math.sqrt(each * each + 4 * self.squared * left)) if left > 0 else 0.0

    def _wide(self) -> float:
        return max(LEAST_SPREAD, 2 * self.spread) * self.at(self.reach)


def line(points: Sequence[tuple[float, float]], *, squared: bool = False) -> Line | None:
    """Return the line through (n, value) with the least relative squares, no part of it below 0; None for fewer than
    two different n. `squared`: with a part per n^2 where no straight line passes and there are three n."""
    different = len({n for n, _ in points})
    if different < 2:
        return None
    spread, best = min(_fitted(points, STRAIGHT), key=lambda each: each[0])
    growth = 1 - min(value for _, value in points) / max(value for _, value in points)
    if squared and different > 2 and spread > LEAST_SPREAD / 2 * growth:  # else a square would be noise
        spread, best = min([(spread, best), *_fitted(points, CURVED)], key=lambda each: each[0])
    return best


def _fitted(points: Sequence[tuple[float, float]], lines: Iterable[tuple[int, ...]]) -> Iterator[tuple[float, Line]]:
    """(spread of the points, line) for each of these powers of n whose parts are all at least 0."""
    n, value = np.array([p[0] for p in points], float), np.array([p[1] for p in points], float)
    for powers in lines:
        columns = np.stack([n**power for power in powers], 1) / value[:, None]
        found, *_ = np.linalg.lstsq(columns, np.ones_like(n), rcond=None)
        if (found >= 0).all():
            errors, free = columns @ found - 1, len(n) - len(powers)
            spread = float(np.sqrt((errors**2).sum() / max(1, free)))
            of = dict(zip(powers, map(float, found), strict=True))
            sure = spread if free else LEAST_SPREAD  # it passes through so few points in any case
            yield spread, Line(of.get(0, 0.0), of.get(1, 0.0), sure, float(n.max()), of.get(2, 0.0))


def bent(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line through the largest n that lie on one: a peak is the highest of several phases of a step, and at
    small n another one may be it. Two points alone are trusted half as much."""
    known = sorted(points)
    for first in range(max(1, len(known) - 1)):
        found = line(known[first:])
        if found is not None and (first == 0 or len(known) - first > 2) and found.spread <= LEAST_SPREAD:
            return found
    whole, last = line(known), line(known[-2:])
    if whole is None or last is None or last.each < whole.each:  # it does not bend upwards: nothing else is known
        return whole
    return Line(last.fixed, last.each, 2 * LEAST_SPREAD, last.reach)


def between(points: Sequence[tuple[float, float]], n: float) -> float | None:
    """Return the value for n on the straight line between its neighbours among the points; None outside of them."""
    known = sorted(points)
    for (low, first), (high, second) in itertools.pairwise(known):
        if low <= n <= high:
            return first + (second - first) * (n - low) / (high - low)
    return None


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median with an interval: 95 % by order statistics, of fewer than six the least and the most."""
    ordered = sorted(values)
    if len(ordered) < 6:
        return statistics.median(ordered), ordered[0], ordered[-1]
    rank = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return statistics.median(ordered), ordered[rank], ordered[-1 - rank]
