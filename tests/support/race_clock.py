"""A whole tuning on a fake clock: arms whose processes are a little off, on a machine that others share."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from gobrrr.guard.model.verdict import Guarded
from gobrrr.trial.arm.arm import AND, UNHELD, ArmError
from gobrrr.trial.arm.live_arms import LATE
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.race.candidates import Candidate, Plan
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.tuning import Journal, Listener, Tuning
from gobrrr.trial.receipt.receipt import Measured, Speedup
from gobrrr.trial.statistics.objective import ENERGY, MEMORY, TIME, Objective
from gobrrr.trial.statistics.rounds import Rounds
from tests.support.trial_clock import Draw, NoisyMachine, gauss

MS = 1e6


class FakeReferee:
    """Steps of `step_ns` over the product of a stack's gains; starts take `start_s` together, a guard `guard_s`. `red`
    remedies spoil the numbers, `broken` ones never come up, `mortal` ones die in their first block. `phases`: bytes
    that a step holds one after the other, which `cuts` multiply, by remedy and phase. `batches`: times the 32 samples
    of a step, by remedy; null where none are counted. `pairs`: that a comparison starts beside each other.
    `power`: times the 300 W that a step takes, by remedy."""

    def __init__(
        self, gains: Mapping[str, float], *, seed: int = 0, bias: float = 0.0, draw: Draw = gauss,
        machine: Mapping[str, float] | None = None, step_ns: float = 20 * MS, start_s: float = 6.0,
        guard_s: float = 20.0, red: Sequence[str] = (), broken: Sequence[str] = (), mortal: Sequence[str] = (),
        room: int = 4, objective: Objective = TIME, phases: Sequence[float] = (1 << 30,),
        cuts: Mapping[str, Mapping[int, float]] | None = None, batches: Mapping[str, float] | None = None,
        pairs: int = 1, power: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._pairs, self._power = pairs, power or {}
        self.objective, self._phases, self._cuts, self._batches = objective, phases, cuts or {}, batches
        self.machine = NoisyMachine(seed, **(machine or {"noise": 0.01, "burst": 0.0}))
        self.gains, self._bias, self._draw, self._step_ns = gains, bias, draw, step_ns
        self._start_s, self._guard_s = start_s, guard_s
        self.red, self.broken, self.mortal, self._room = red, broken, mortal, room
        self._stream = random.Random(f"processes of {seed}")
        self._seed = seed
        self.alive: dict[Stack, float] = {}
        self.starts: list[Stack] = []
        self.guarded: list[Stack] = []
        self.milder: list[Stack] = []
        self.measured: list[Stack] = []

    def clock(self) -> float:
        return self.machine.now

    def start(self, stacks: Sequence[Stack], seconds: float) -> dict[Stack, str]:
        assert not set(stacks) & set(self.alive)
        lacking = {stack: [name for name in stack if name in self.broken] for stack in stacks}
        failed = {stack: f"{AND.join(names)} {UNHELD} in its first step" for stack, names in lacking.items() if names}
        if stacks:
            self.machine.now += min(seconds, self._start_s)
        if self._start_s > seconds:
            failed = dict.fromkeys(stacks, f"{LATE} 1 s")
        self.starts += stacks
        self.alive.update({stack: self._off() for stack in stacks if stack not in failed})
        return failed

    def block(self, stack: Stack, steps: int) -> Block:
        if set(stack) & set(self.mortal):
            raise ArmError("it was killed")
        ns = self.machine.block(self.step(stack) * self.alive[stack], steps)
        return self._block(stack, ns, steps)

    def _block(self, stack: Stack, ns: float, steps: int) -> Block:
        peak = self.peak_of(stack) * math.exp(0.001 * self._stream.gauss(0.0, 1.0))
        batches = self._batches
        rows = None if batches is None else int(32 * steps * math.prod(batches.get(name, 1.0) for name in stack))
        return Block(int(ns), tuple([int(ns / steps)] * steps), peak_bytes=int(peak), samples=rows,
                     joules=300.0 * ns / 1e9 * math.prod(self._power.get(name, 1.0) for name in stack))  # fmt: skip

    def peak_of(self, stack: Stack) -> float:
        held = enumerate(self._phases)
        return max(size * math.prod(self._cuts.get(n, {}).get(at, 1.0) for n in stack) for at, size in held)

    def end(self, stacks: Sequence[Stack] | None = None) -> None:
        for stack in list(self.alive) if stacks is None else stacks:
            self.alive.pop(stack, None)

    def places(self) -> int:
        return self._room

    def started(self, stack: Stack) -> tuple[float, float]:
        return self._start_s, self.step(stack)

    def peak(self, stack: Stack) -> int | None:
        return 1 << 30

    def step(self, stack: Stack) -> float:
        return self._step_ns / math.prod(self.gains.get(name, 1.0) for name in stack)

    def guard(self, stack: Stack, milder: Stack = ()) -> Guarded:
        self.guarded.append(stack)
        self.milder.append(milder)
        self.machine.now += self._guard_s
        return Guarded("wrong" if set(stack) & set(self.red) else "equivalent")

    def pairs(self) -> int:
        return self._pairs

    def measure(self, plan: Plan, seconds: float) -> Measured:
        assert not self.alive, "arms of the race still held memory"
        self.measured.append(plan.candidate)
        began = self.clock()
        self.machine.now += self._start_s
        off = self._off(), self._off()
        rounds = Rounds((self.step(()), self.step(plan.candidate)), seed=self._seed, seconds=seconds, overrun=1.0,
                        spent=self._start_s, clock=self.clock, objective=self.objective,
                        started=self._pairs, ahead_s=self._start_s)  # fmt: skip
        while (block := rounds.next()) is not None:
            if block.fresh:
                self.machine.now += self._start_s if len(rounds.logs) > self._pairs else 0.0
                off = self._off(), self._off()
            stack = plan.candidate if block.arm else plan.baseline
            ns = self.machine.block(self.step(stack) * off[block.arm], block.steps)
            made = self._block(stack, ns, block.steps)
            rounds.feed(ns, block.steps, self.objective.cost(made) if self.objective is not TIME else None)
        found = rounds.result()
        assert self.clock() - began <= seconds + 2 * self._start_s
        compared, slower = Speedup(found.median, found.low, found.high), self.step(()) / self.step(plan.candidate)
        made = lambda stack=(): self._block(stack, self.step(stack), 1).joules  # noqa: E731
        memory, energy = self.objective is MEMORY, self.objective is ENERGY
        return Measured(
            verdict=self.objective.word(found.verdict), 
            speedup=Speedup(slower, slower, slower) if memory or energy else compared,
            memory=compared if memory else None, energy=compared if energy else None, reason=rounds.wants(),
            step_ns=(self.step(()), self.step(plan.candidate)),
            step_joules=(made(), made(plan.candidate)) if energy else (None, None),
            step_peak_bytes=(int(self.peak_of(())), int(self.peak_of(plan.candidate))) if memory else (None, None),
        )  # fmt: skip

    def _off(self) -> float:
        return math.exp(self._bias * self._draw(self._stream))


def tuned(
    referee: FakeReferee, candidates: Sequence[Candidate], folder: Path, *, seconds: float = 300.0, seed: int = 0,
    listener: Listener | None = None,
) -> Tuning:  # fmt: skip
    """A tuning from its race to its confirmation."""
    tuning = Tuning(candidates, referee.step(()), referee, Journal(folder / "journal.jsonl"), seconds=seconds,
                    seed=seed, listener=listener, clock=referee.clock, objective=referee.objective)  # fmt: skip
    tuning.take_over()
    tuning.run()
    return tuning
