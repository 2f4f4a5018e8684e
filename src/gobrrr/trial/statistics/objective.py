"""Objective: the measure a tuning makes smaller, how sure its figures are, and its verdicts' names. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gobrrr.machine.gauges.counter import LEAST_NS
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.statistics.paired import PROCESS_BAND, PROCESS_SD

WORTH_BYTES = 0.05
"""Share of the peak below which a saving is none: peaks hardly scatter, so that one of 1 % could be shown, and nobody
would compute longer for it."""
BYTES_SD = 0.01
"""Deviation of a process's log peak from other starts of the same arm; measured: 0.4 to 1.8 % in programs of 300 to 500
MiB, whose heap lies otherwise each time."""


def _per_step(block: Block) -> float:
    """A program that learns nothing is timed by the rows that its models are given, where they are counted: an edit may
    batch their calls otherwise (`Objective.of`)."""
    return block.ns / (block.rows or len(block.walls))


def _per_sample(block: Block) -> float:
    """Where no batch came from a loader nobody knows how many samples a step has: then they have equally many."""
    return block.ns / block.samples if block.samples else _per_step(block)


def _peak(block: Block) -> float:
    return float(block.peak_bytes or 1)


def _energy(block: Block) -> float:
    return (block.joules or math.nan) / (block.rows or len(block.walls))


@dataclass(frozen=True)
class Objective:
    """A figure of a block, above 0, of which less is better. Arms are compared by its log ratio."""

    name: str
    cost: Callable[[Block], float]
    better: str = "faster"
    worse: str = "slower"
    process_sd: float = PROCESS_SD
    """Deviation of a process's log figure from its next start's."""
    band: float = PROCESS_BAND
    """Arms within it are equivalent."""
    worth: float = 0.0
    """Log ratio that a gain must surely be above; what is less than it apart is a tie."""
    is_peak: bool = False
    """Whether it is a peak: only what is highest shows, the rest once that is gone. So a remedy that changes nothing by
    itself is tried on top of others. And nobody predicts it: all that exclude each other are looked at."""

    own: str = ""
    """Name of its ratio in results, where that stands beside the speedup in time."""
    shortest_ns: float = POLICY.shortest_ns
    """Least length of a block."""

    def of(self, rows: bool) -> Objective:
        """The same with blocks timed by the rows that models are given, or never."""
        return self if rows or self.is_peak else replace(self, cost=lambda block: self.cost(block._replace(rows=0)))

    def verdict(self, low: float, high: float) -> str:
        """Say what an interval of log ratios, reference over contender, means."""
        if low > self.worth or high < -self.worth:
            return self.better if low > self.worth else self.worse
        inside = math.log(1 - self.band) <= low and high <= math.log(1 + self.band)
        return "equivalent" if inside else "inconclusive"

    def word(self, verdict: str) -> str:
        """Its own word for one of statistics.Comparison."""
        return {"faster": self.better, "slower": self.worse}.get(verdict, verdict)


def adjective(verdict: str) -> str:
    """Return it as what a program can be: 'faster', 'less energy-hungry'."""
    return verdict.replace(" energy", " energy-hungry")


def _whole(block: Block) -> float:
    """With what lies between steps (an evaluation, say): an edit must not move its work there."""
    return _per_step(block._replace(ns=block.whole_ns or block.ns))


TIME = Objective("time", _per_step)
WHOLE = Objective("time", _whole)
THROUGHPUT = Objective("throughput", _per_sample)
MEMORY = Objective(
    "memory", _peak, "smaller", "larger", BYTES_SD, WORTH_BYTES, -math.log(1 - WORTH_BYTES), is_peak=True, own="memory"
)
FOOTPRINT = Objective("footprint", _peak, "smaller", "larger", is_peak=True)
"""Most that a process held since its start, loading and first step included."""
ENERGY = Objective(
    "energy", _energy, "less energy", "more energy", own="energy", shortest_ns=1.2 * LEAST_NS
)  # steps are faster than in the warm-up
OBJECTIVES = {each.name: each for each in (TIME, MEMORY, THROUGHPUT, ENERGY)}
"""Objectives by the word that a person types."""
BETTER = tuple(dict.fromkeys(each.better for each in OBJECTIVES.values()))
"""Verdicts that speak for a stack, of whatever objective."""
SETTLED = (*BETTER, *dict.fromkeys(each.worse for each in OBJECTIVES.values()), "equivalent")
"""Verdicts that a later tuning may take over."""
