"""How often two arms are started anew, which block runs next, and when it is enough. Pure: the referee measures.

    rounds = Rounds(step_ns=(2e7, 2e7), edge_ns=1e6, seed=0, seconds=90)
    while (block := rounds.next()) is not None:
        if block.fresh:
            ...                                        # both arms are started anew
        rounds.feed(run(block.arm, block.steps))       # ns of the block, by the arm's own clock
    comparison = rounds.result()                       # statistics.Comparison, its unit the round

A round is a fresh pair of processes and some quadruples of their blocks. The first four quadruples say how much they
scatter and what starting costs: from that follows how many a round should have. After two rounds it is fixed how many
there will be, and at which of them is looked; the planned looks spend the error once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.statistics import paired
from gobrrr.trial.statistics.block_schedule import Block, Quadruples, block_steps, looks
from gobrrr.trial.statistics.objective import TIME, Objective
from gobrrr.trial.statistics.paired import LEVEL, MEDIAN_LOSS, PROCESS_SD, Comparison


class Rounds:
    """Decides block after block. `seconds` bounds the whole comparison, starts and warm-ups among it; `spent` is what
    the first start of both arms took, `ahead_s` of it the first steps of the arms of so many rounds, which were
    `started` beside each other. `apart`: every block is a process of its own. `overrun`: times the seconds that the
    fewest rounds may take; 1 for a bound that is kept."""

    def __init__(
        self, step_ns: tuple[float, float], edge_ns: float = 1e6, *, seed: int = 0, seconds: float = math.inf,
        spent: float = 0.0, level: float = LEVEL, effect: float = POLICY.effect, most: int = POLICY.most_rounds,
        apart: bool = False, overrun: float = POLICY.overrun, clock: Callable[[], float] = time.monotonic,
        objective: Objective = TIME, started: int = 1, ahead_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._blocks = Quadruples(block_steps(min(step_ns), edge_ns, shortest_ns=objective.shortest_ns), seed)
        self._seconds, self._level, self._effect, self._most = seconds, level, effect, most
        self._clock, self._apart, self._overrun, self._objective = clock, apart, overrun, objective
        self._started, self._ahead_s = started, ahead_s if started > 1 else 0.0
        self._began = self._round_began = clock() - spent
        self._blocks_s = 0.0
        self._round_s = 0.0
        self._fresh = False
        self.logs: list[list[float]] = [[]]
        """Log ratios of each round's quadruples."""
        self.quadruples = POLICY.fewest_quadruples if apart else POLICY.pilot
        """Quadruples of a round; fixed after the pilot."""
        self.planned = POLICY.fewest_rounds
        """Rounds in all; fixed after the second."""
        self._looks: dict[int, float] = {}
        # The first look is after three rounds, however many are planned: large effects are settled there.
        self._result: Comparison | None = None

    def next(self) -> Block | None:
        """The next block, or None where the comparison is settled or its time is spent."""
        return self._blocks.next()._replace(fresh=self._fresh) if self._result is None else None

    def feed(self, ns: float, steps: int | None = None, cost: float | None = None) -> None:
        """The block's time; `steps` where the arm made fewer than asked; `cost` where another figure is compared than
        the time per step."""
        self._fresh = False
        self._blocks_s += ns / 1e9
        log = self._blocks.feed(ns, steps) if cost is None else self._blocks.feed(cost, 1)
        if log is None:
            return
        self.logs[-1].append(log)
        if len(self.logs) == 1 and len(self.logs[0]) == POLICY.pilot and not self._apart:
            start = self._clock() - self._round_began - self._blocks_s
            start -= self._ahead_s * (1 - math.ceil(POLICY.fewest_rounds / self._started) / POLICY.fewest_rounds)
            scatter = paired.scatter_of(self.logs[0])
            self.quadruples = per_round(start, self._blocks_s / POLICY.pilot, scatter, self._seconds, self._overrun)
        if len(self.logs[-1]) >= self.quadruples:
            self._round_done()

    def may_end(self) -> bool:
        """Whether the round says something as it stands: where its program is over, the next one's may begin."""
        return not self._apart and len(self.logs[-1]) >= POLICY.fewest_quadruples

    def ended(self) -> None:
        """The program is over before the round is: another start is another pair of processes."""
        self._blocks.drop()
        self._round_done()

    def _round_done(self) -> None:
        now = self._clock()
        self._round_s, self._round_began = now - self._round_began, now
        num = len(self.logs)
        if num == POLICY.fewest_rounds - 1:
            self._fix(num)
        if num in self._looks:
            found = self._compared(self.logs, self._looks[num])
            if found.verdict != "inconclusive" or num >= self.planned:
                self._result = found
                return
        # The next round is taken to last as long as this one: the second start of a compiled arm finds its caches.
        limit = self._seconds * (self._overrun if num < POLICY.fewest_rounds else 1.0)
        if now + self._lasts(num + 1) - self._began > limit:
            self._result = self._last_look() if num >= POLICY.fewest_rounds else self._cut()
            return
        self.logs.append([])
        self._fresh = True

    def _lasts(self, num: int) -> float:
        """Seconds of a round, by the last one: the first pays for all that were started with it, later ones for
        theirs."""
        return self._round_s + self._ahead_s * (self._pays(num) - self._pays(len(self.logs)))

    def _pays(self, num: int) -> bool:
        """Whether arms come up in it."""
        return num == 1 or num > self._started

    def _fix(self, num: int) -> None:
        """How many rounds there will be, and at which of them is looked, at which level."""
        error, _ = paired.standard_error([np.asarray(each) for each in self.logs], self._objective.process_sd)
        wanted = paired.rounds_for(self._effect, error, num, self._level)
        left = self._seconds - (self._clock() - self._began)
        each = self._lasts(self._started + 1)
        affordable = num + int(left / each) if math.isfinite(left) and each > 0 else self._most
        self.planned = max(POLICY.fewest_rounds, min(wanted, affordable, self._most))
        self._looks = looks(self.planned, POLICY.fewest_rounds, self._level, (0.0, *POLICY.looks))

    def result(self) -> Comparison:
        """Return what the rounds say; where the comparison was cut short it can only be inconclusive."""
        return self._result or self._cut()

    def _last_look(self) -> Comparison:
        """The time is over before the planned rounds were made: not because of what they say, so that all of the error
        that no look has spent yet is left for this one."""
        spent = sum(level for num, level in self._looks.items() if num <= len(self.logs))
        return self._compared(self.logs, self._level - spent) if spent < self._level else self._cut()

    def _compared(self, logs: list[list[float]], level: float) -> Comparison:
        of = self._objective
        return paired.compare_rounds(logs, level, of.band, of.process_sd, of.worth)

    def _cut(self) -> Comparison:
        found = self._compared([each for each in self.logs if each], self._level)
        needed = max(found.needed or 0, self.planned, POLICY.fewest_rounds)
        return Comparison("inconclusive", found.median, found.low, found.high, found.p_value, found.level, found.num,
                          needed)  # fmt: skip

    def wants(self) -> str:
        """For inconclusive: what would settle it, in words; how long is taken from the last round."""
        needed = self.result().needed
        if needed is None:
            return ""
        seconds = sum(map(self._lasts, range(1, needed + 1)))
        settles = f"would settle it, about {max(0.1, seconds / 60):.1f} min for this trial"
        num, fewest = self.result().num, POLICY.fewest_rounds
        if num < fewest:
            return f"time for {num} of the {fewest} starts of each arm that a verdict takes; {needed} {settles}"
        return f"{needed} starts of each arm {settles}"


def per_round(
    start_s: float, quadruple_s: float, scatter: float, seconds: float = math.inf, overrun: float = POLICY.overrun
) -> int:
    """Quadruples of a round for the least time in all: sqrt(cost of a start / of a quadruple x variance of a quadruple
    / of a pair of processes), the usual two-stage sample (Cochran 1977, 10.6); fewer where three rounds would not fit
    into `seconds`. Where starts alone take longer, and those may be overrun, a share of a start."""
    ratio = (MEDIAN_LOSS * scatter) ** 2 / (2 * PROCESS_SD**2)
    best = math.sqrt(max(0.0, start_s) / max(quadruple_s, 1e-9) * ratio)
    each = POLICY.slack * seconds / POLICY.fewest_rounds
    room = max(each - start_s, min(POLICY.round_share * start_s, each * overrun - start_s)) / max(quadruple_s, 1e-9)
    return int(min(max(math.ceil(best), POLICY.pilot), max(room, POLICY.fewest_quadruples), POLICY.most_quadruples))
