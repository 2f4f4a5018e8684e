"""A machine that others share, for trials on a fake clock: bursts of contention, a heavy tail, slow drift."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from gobrrr.trial.statistics.block_schedule import Pairing
from gobrrr.trial.statistics.paired import Comparison
from gobrrr.trial.statistics.rounds import Rounds


class NoisyMachine:
    """Times of blocks; `now` moves with them. Shares and lengths are those of a shared machine of two cores."""

    def __init__(
        self, seed: int, *, noise: float = 0.02, burst: float = 0.08, burst_share: float = 0.15,
        drift: float = 0.0, period_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._random = random.Random(seed)
        self.now = 0.0
        self._noise, self._burst, self._burst_share = noise, burst, burst_share
        self._drift, self._period = drift, period_s
        self._contended = 0.0

    def block(self, step_ns: float, steps: int) -> float:
        """ns of a block; bursts last some blocks, so that neighbours resemble each other."""
        if self._contended <= 0 and self._random.random() < self._burst_share / 4:
            self._contended = self._random.uniform(2, 8)
        self._contended -= 1
        slow = 1 + (self._random.uniform(0, 2 * self._burst) if self._contended > 0 else 0.0)
        tail = 1 + (self._random.expovariate(5.0) if self._random.random() < 0.02 else 0.0)
        if self._period:
            slow *= 1 + self._drift * math.sin(2 * math.pi * self.now / self._period)
        else:
            slow *= 1 + self._drift * self.now / 60.0
        ns = step_ns * steps * slow * tail * math.exp(self._random.gauss(0, self._noise))
        self.now += ns / 1e9
        return ns


def trial(machine: NoisyMachine, speedup: float, seed: int, step_ns: float = 2e7, **fields) -> Comparison:
    """A whole comparison in one process; the candidate is `speedup` times as fast."""
    pairing = Pairing((step_ns, step_ns / speedup), seed=seed, **fields)
    while (block := pairing.next()) is not None:
        pairing.feed(machine.block(step_ns / (speedup if block.arm else 1.0), block.steps))
    return pairing.result()


Draw = Callable[[random.Random], float]
"""A process's log bias in units of its deviation."""


def gauss(stream: random.Random) -> float:
    """Many small causes."""
    return stream.gauss(0, 1)


def bimodal(stream: random.Random) -> float:
    """Half of the starts are lucky."""
    return stream.choice((-1.0, 1.0))


def rarely(stream: random.Random) -> float:
    """One start in ten is slow; mean 0, deviation 1."""
    return 3.0 if stream.random() < 0.1 else -1 / 3


DRAWS: dict[str, Draw] = {"gauss": gauss, "bimodal": bimodal, "rarely": rarely}
MACHINES = {
    "white noise": {"burst": 0.0},
    "drift": {"drift": 0.02, "noise": 0.005},
    "bursts": {"noise": 0.01, "burst": 0.3},
    "load comes and goes": {"drift": 0.2, "noise": 0.01, "period_s": 10.0},
}
"""What a machine does to blocks, beside its heavy tail."""


def arms_trial(
    machine: NoisyMachine, speedup: float, seed: int, *, bias: float = 0.0, draw: Draw = gauss, step_ns: float = 2e7,
    starts_s: Sequence[float] = (6.0,), seconds: float = 90.0, **fields,
) -> Rounds:  # fmt: skip
    """A whole comparison of arms that are started anew; each process is off by `bias`, starting both takes the next of
    `starts_s`, the last one from there on."""
    stream = random.Random(f"processes of {seed}")
    costs = list(starts_s)

    def started() -> list[float]:
        machine.now += costs.pop(0) if len(costs) > 1 else costs[0]
        return [math.exp(bias * draw(stream)) for _ in range(2)]

    off = started()
    rounds = Rounds((step_ns, step_ns / speedup), seed=seed, seconds=seconds, spent=machine.now,
                    clock=lambda: machine.now, **fields)  # fmt: skip
    while (block := rounds.next()) is not None:
        if block.fresh:
            off = started()
        rounds.feed(machine.block(step_ns * off[block.arm] / (speedup if block.arm else 1.0), block.steps))
    return rounds


def started_once(machine: NoisyMachine, seed: int, bias: float, draw: Draw = gauss) -> Comparison:
    """Identical arms whose two processes are started once and whose quadruples are the unit."""
    stream = random.Random(f"processes of {seed}")
    return trial(machine, math.exp(bias * (draw(stream) - draw(stream))), seed, seconds=90.0)


def one_after_the_other(machine: NoisyMachine, blocks: int, step_ns: float = 2e7, steps: int = 5) -> float:
    """The usual way: all blocks of one arm, then all of the other; the ratio of their medians, as a log."""
    first, second = (sorted(machine.block(step_ns, steps) for _ in range(blocks)) for _ in range(2))
    return math.log(first[blocks // 2] / second[blocks // 2])
