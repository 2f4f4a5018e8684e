"""A heat: arms that live side by side and take turns, until each has shown what it can. Pure: others measure.

    heat = Heat(reference, contenders, seed=0)
    while (order := heat.order()):
        heat.feed({arm: [cost of its blocks] ...})            # a sweep: there and back, A B C C B A
    heat.standing(contender)                                  # against the reference, at any moment

A sweep goes through the arms in an order drawn anew and then back: linear drift falls on all of them alike, and every
pair of arms has a log ratio of it, as a quadruple has of two. Who is shown to win, or to lose, gets no more blocks; of
the others those that look worst go after 3, 6, 12 and 24 sweeps (successive halving: each look costs as much as all
looks before it).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.statistics import anytime
from gobrrr.trial.statistics.anytime import Interval
from gobrrr.trial.statistics.objective import TIME, Objective
from gobrrr.trial.statistics.paired import LEVEL

Stack = tuple[str, ...]
"""Names of remedies; empty for the program as it is."""


class Heat:
    """Decides who runs in the next sweep, and says how they stand."""

    def __init__(
        self, reference: Stack, contenders: Sequence[Stack], *, seed: int = 0, level: float = LEVEL,
        objective: Objective = TIME, most: int = POLICY.sweeps[-1],
    ) -> None:  # fmt: skip
        self.reference, self.contenders, self.objective = reference, tuple(contenders), objective
        self.most = most
        """Sweeps that a contender gets."""
        self.sweeps: list[dict[Stack, float]] = []
        """Mean log cost of each arm in each sweep that it ran in."""
        self._level, self._random = level, random.Random(seed)
        self._live = list(contenders)

    def order(self) -> list[Stack]:
        """The arms of the next sweep, one way; none where the heat is over."""
        if not self._live:
            return []
        found = [self.reference, *self._live]
        self._random.shuffle(found)
        return found

    def feed(self, costs: Mapping[Stack, Sequence[float]]) -> None:
        """Add the costs of each arm's blocks in one sweep: ns per step, say."""
        self.sweeps.append({arm: fmean(map(math.log, cost)) for arm, cost in costs.items()})
        self._live = [arm for arm in self._live if self._runs_on(arm)]

    def join(self, arms: Sequence[Stack]) -> None:
        """They run from the next sweep on."""
        self.contenders += tuple(arms)
        self._live += arms

    def leave(self, arm: Stack) -> None:
        """It died, say: no more blocks for it."""
        self._live = [each for each in self._live if each != arm]

    @property
    def live(self) -> tuple[Stack, ...]:
        """Contenders that still get blocks."""
        return tuple(self._live)

    def standing(self, arm: Stack, against: Stack | None = None) -> Interval:
        """How much faster it is than the reference, or another arm, from the sweeps of both; valid at any moment."""
        other = self.reference if against is None else against
        return anytime.interval(self.sweeps, other, arm, self._level, self.objective.process_sd)

    def verdict(self, arm: Stack) -> str:
        """Return the verdict: better, worse, equivalent (inside the band of two processes) or inconclusive."""
        found = self.standing(arm)
        return self.objective.verdict(found.low, found.high)

    def wins(self, arm: Stack) -> bool:
        """Whether it is shown to be better than the reference."""
        return self.verdict(arm) == self.objective.better

    def leans(self, arm: Stack, by: float, after: int) -> bool:
        """Whether it seems better than the reference by this log ratio, by more than chance, after so many sweeps."""
        found = self.standing(arm)
        return found.num >= after and found.mean > max(by, POLICY.sure * found.error)

    def leans_far(self, arm: Stack) -> bool:
        """Whether others may wait until it is proven."""
        return self.leans(arm, POLICY.plenty, POLICY.sweeps[1])

    def _runs_on(self, arm: Stack) -> bool:
        found = self.standing(arm)
        if self.verdict(arm) != "inconclusive":
            return False
        if found.num in POLICY.sweeps and found.num < self.most:
            return found.mean > POLICY.hurdles[POLICY.sweeps.index(found.num)] * found.error
        return found.num < self.most
