"""Which side runs next in one process, for how many steps, and when it is enough. Pure: others measure, this decides.

    pairing = Pairing(step_ns=(2e7, 2e7), edge_ns=1e6, seed=0)
    while (block := pairing.next()) is not None:
        pairing.feed(run(block.arm, block.steps))      # ns of the block, by the arm's own clock
    comparison = pairing.result()                       # statistics.Comparison

Blocks come in quadruples, A B B A or B A A B at random, so that drift falls on both arms alike. A pilot says how much
quadruples scatter; from that the number of quadruples is fixed once. On the way there are planned looks at levels that
together spend the error once: the comparison ends at the first look that settles it, never merely "when significant".
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.statistics import paired
from gobrrr.trial.statistics.paired import BAND, FEWEST, LEVEL, Comparison

MOST = 60
"""Quadruples at most, where the time allows them."""


class Block(NamedTuple):
    """The next block: 0 is the baseline's arm, 1 the candidate's."""

    arm: int
    steps: int
    fresh: bool = False
    """Both arms are started anew before it."""


def block_steps(
    step_ns: float, edge_ns: float, share: float = POLICY.edge_share, shortest_ns: float = POLICY.shortest_ns
) -> int:
    """Steps of a block whose edges take at most this share of it and that is no shorter than `shortest_ns`."""
    return max(1, math.ceil(max(edge_ns / share, shortest_ns) / max(step_ns, 1.0)))


def looks(planned: int, fewest: int, level: float, shares: Sequence[float] = POLICY.looks) -> dict[int, float]:
    """After how many units is looked, and at which level; all levels together are `level`."""
    places = sorted({max(fewest, math.ceil(share * planned)) for share in shares})
    return dict(zip(places, paired.levels([place / planned for place in places], level), strict=True))


class Quadruples:
    """Blocks in the order A B B A or B A A B at random, and what each four of them say."""

    def __init__(self, steps: int, seed: int) -> None:
        # Both arms make the same number of steps per block: their data then stay in step too.
        self.steps = steps
        self._random = random.Random(seed)
        self._order: list[int] = []
        self._arms: list[int] = []
        self._times: list[float] = []

    def next(self) -> Block:
        """The next block; the same one until it is fed."""
        if not self._order:
            self._order = list(self._random.choice(((0, 1, 1, 0), (1, 0, 0, 1))))
            self._arms, self._times = list(self._order), []
        return Block(self._order[0], self.steps)

    def drop(self) -> None:
        """The blocks of a quadruple that is not whole are of no use: the next one begins another."""
        self._order = []

    def feed(self, ns: float, steps: int | None = None) -> float | None:
        """The block's time, `steps` where the arm made fewer than asked; the log ratio where it was the fourth."""
        self._order.pop(0)
        self._times.append(ns / (steps or self.steps))
        if self._order:
            return None
        log = paired.quadruple(*self._times)
        return log if self._arms[0] == 0 else -log


class Pairing:
    """Decides block after block for two sides that live in one process. `seconds` bounds the blocks' time."""

    def __init__(
        self, step_ns: tuple[float, float], edge_ns: float = 1e6, *, seed: int = 0, seconds: float = math.inf,
        level: float = LEVEL, band: float = BAND, effect: float = POLICY.effect, most: int = MOST,
    ) -> None:  # fmt: skip
        self._seconds, self._level, self._band, self._effect, self._most = seconds, level, band, effect, most
        self._seed = seed
        self._blocks = Quadruples(block_steps(min(step_ns), edge_ns), seed)
        self.logs: list[float] = []
        self.spent_ns = 0.0
        self.planned = POLICY.pilot
        """Quadruples in all; fixed after the pilot."""
        self._fixed = False
        self._looks: dict[int, float] = {}
        self._result: Comparison | None = None

    def next(self) -> Block | None:
        """The next block, or None where the comparison is settled or its quadruples are spent."""
        return self._blocks.next() if self._result is None else None

    def feed(self, ns: float, steps: int | None = None) -> None:
        """The block's time; `steps` where the side made fewer than asked."""
        self.spent_ns += ns
        log = self._blocks.feed(ns, steps)
        if log is None:
            return
        self.logs.append(log)
        if not self._fixed and len(self.logs) >= POLICY.pilot:
            self._fix()
        if self._fixed:
            self._look()

    def _fix(self) -> None:
        """The pilot is in: how many quadruples there will be, and at which of them is looked, at which level."""
        wanted = paired.quadruples_for(self._effect, paired.scatter_of(self.logs), self._level)
        each = self.spent_ns / len(self.logs) / 1e9
        affordable = int(self._seconds / each) if each > 0 and math.isfinite(self._seconds) else self._most
        if affordable < self._fewest() <= POLICY.overrun * affordable:
            affordable = self._fewest()
        self.planned = max(FEWEST, min(max(wanted, self._fewest()), affordable, self._most))
        self._looks = looks(self.planned, FEWEST, self._level)
        self._fixed = True

    def _fewest(self) -> int:
        """Quadruples with which the sign test can reach the level that the last look has."""
        last = paired.levels(POLICY.looks, self._level)[-1]
        return math.ceil(1 - math.log2(last))

    def _look(self) -> None:
        level = self._looks.get(len(self.logs))
        if level is None:
            return
        found = paired.compare(self.logs, level, self._band, self._seed)
        if found.verdict != "inconclusive" or len(self.logs) >= self.planned:
            self._result = found

    def result(self) -> Comparison:
        """Return what the quadruples so far say; where the comparison was cut short it can only be inconclusive."""
        if self._result is not None:
            return self._result
        cut = paired.compare(self.logs, self._level, self._band, self._seed)
        needed = cut.needed or max(self.planned, FEWEST)
        return Comparison("inconclusive", cut.median, cut.low, cut.high, cut.p_value, cut.level, cut.num, needed)
