"""A race on live arms: heat after heat until nothing is open or the time for it is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from gobrrr.trial.arm.arm import SPENT, ArmError, cost_of
from gobrrr.trial.arm.live_arms import is_late
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.race.candidates import compiles
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Heat, Stack
from gobrrr.trial.race.search import Race
from gobrrr.trial.receipt.receipt import Samples, Speedup, TrialResult
from gobrrr.trial.statistics import anytime
from gobrrr.trial.statistics.block_schedule import block_steps
from gobrrr.trial.statistics.objective import SETTLED


class Arms(Protocol):
    """Arms as a race needs them. Whatever goes wrong inside one is an outcome: only `block` raises, ArmError."""

    def start(self, stacks: Sequence[Stack], seconds: float) -> dict[Stack, str]:
        """Bring them up beside each other; the reasons of those that were not ready in time."""

    def block(self, stack: Stack, steps: int) -> Block:
        """Steps of one of them."""

    def end(self, stacks: Sequence[Stack] | None = None) -> None:
        """End these, or all."""

    def places(self) -> int:
        """Arms that there is room for beside those that are alive."""

    def started(self, stack: Stack) -> tuple[float, float]:
        """Seconds that it took until it was warm, and ns of its step."""

    def peak(self, stack: Stack) -> int | None:
        """Most bytes that it held."""


class Listener:
    """Told what happens, as it happens; the live view and the plain lines are two of these."""

    def heat(self, heat: Heat) -> None:
        """The arms of a heat are being started."""

    def standing(self, heat: Heat) -> None:
        """A sweep of it has ended."""


class Pace(NamedTuple):
    """Pace of later processes of a combination: seconds of the slowest start, ns of the slowest step, and a block's
    time by the clock over that of its steps, since time between steps (an evaluation) is not the step's."""

    start_s: float
    step_ns: float
    slack: float


class Ran(NamedTuple):
    """A block as it ran."""

    stack: Stack
    steps: int
    ns: int
    cost: float
    peak_bytes: int | None = None
    samples: int | None = None
    joules: float | None = None


class Looked(NamedTuple):
    """Outcome of a heat."""

    results: list[TrialResult]
    broken: dict[Stack, str]
    """Why some could not run."""
    times: dict[Stack, float]
    """Mean log ratios of time."""


class Racing:
    """Runs heats. `until`: when, by the clock, the race must be over; asked again before each sweep."""

    def __init__(
        self, race: Race, arms: Arms, until: Callable[[], float], keep: Callable[[TrialResult], None],
        listener: Listener, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`keep` is given every result as it comes."""
        self._race, self._arms, self._until, self._keep = race, arms, until, keep
        self._listener, self._clock = listener, clock
        self._alive: set[Stack] = set()
        self._peaks: dict[Stack, int | None] = {}
        self._starts: dict[Stack, tuple[float, float]] = {}
        """Seconds of each start, and ns of a step: the shortest of late, for others were started meanwhile."""
        self._took: dict[Stack, float] = {}
        """Seconds of each start; of a late one, at least."""
        self._lasted_s = self._stepped_s = 0.0
        """Seconds of all blocks in which nothing was started anew: by the clock, and of their steps."""
        self._running: Heat | None = None
        self.broken = ""
        """Why the program as it is could not be run."""
        self._over = False
        """It could be run before, and there was no time to start it once more."""

    def run(self) -> None:
        """All heats. What the program as it is cannot do ends them."""
        while (
            not (self.broken or self._over)
            and (heat := self._race.next(max(1, self._arms.places()), self._fits)) is not None
        ):
            self._heat(heat)
        self._arms.end()
        self._alive.clear()

    def _fits(self, stack: Stack, times: float = 1.0) -> bool:
        """Whether it can be started in what is left, so many times: parts of it tell how long that takes, and others
        that compile, else the program as it is."""
        alike = [took for known, took in self._took.items() if known and (set(known) <= set(stack) or
                 (compiles(known) and compiles(stack)))]  # fmt: skip
        times = times if () in self._alive else max(times, POLICY.again)
        return self._left() > times * max(alike, default=self._took.get((), 0.0))

    def hope(self) -> Stack:
        """Return what is worth its proof by now: shown to be better, or leaning far; empty where nothing is."""
        heat, race = self._running, self._race
        if (race.shown or race.far()) and (known := race.best()):
            return known
        if heat is None:
            return ()
        alive = (each for each in heat.contenders if each in self._alive)
        return next((each for each in alive if heat.wins(each) or heat.leans_far(each)), ())

    def pace(self, confirmed: Stack) -> Pace:
        """Return the pace of what is to be confirmed."""
        starts = [found for stack, found in self._starts.items() if set(stack) <= set(confirmed)]
        plain = self._starts[()][0] if () in self._starts else math.inf
        start_s = min(max((start for start, _ in starts), default=0.0), POLICY.cached * plain)
        step_ns = max((step for _, step in starts), default=0.0)
        return Pace(start_s, step_ns, max(1.0, self._lasted_s / self._stepped_s) if self._stepped_s else 1.0)

    def _left(self) -> float:
        return self._until() - self._clock()

    def _bring(self, stacks: Sequence[Stack], part: float = 1.0) -> dict[Stack, str]:
        """Start those that are not alive, in this part of what is left; why some are not."""
        began = self._clock()
        absent = [stack for stack in stacks if stack not in self._alive]
        failed = self._arms.start(absent, part * max(0.0, self._left()))
        late = self._clock() - began
        self._alive.update(stack for stack in stacks if stack not in failed)
        self.broken = failed.get((), "")
        if is_late(self.broken) and () in self._starts:
            self.broken, self._over = "", True
        for stack in stacks:
            if stack not in failed:
                self._starts[stack] = self._arms.started(stack)
                self._took[stack] = self._starts[stack][0]
            elif is_late(failed[stack]):
                self._took[stack] = late
        return failed

    def _heat(self, heat: Heat) -> None:
        self._running = heat
        looked = self.look(heat, lambda failed: self._race.fill(heat, failed, lambda s: self._fits(s, POLICY.fills)))
        if looked is None:
            return
        self._race.feed(heat, looked.broken, looked.times)
        self._running = None
        self._let_go(self._alive - {self._race.front()})
        for result in looked.results:
            self._keep(result)

    def look(self, heat: Heat, fill: Callable[[dict[Stack, str]], list[Stack]] = lambda _: []) -> Looked | None:
        """Start a heat's arms and let them take turns until each has shown what it can; null where the program as it is
        cannot be run. `fill`: who takes the places of those that failed, and why they did. Those that are still alive
        are the caller's.
        """
        began = self._clock()
        self._listener.heat(heat)
        wanted = {heat.reference, *heat.contenders}
        if len(wanted - self._alive) > self._arms.places():  # a device is full: who has no part in this heat goes
            self._end(self._alive - wanted)
        failed = self._bring([heat.reference, *heat.contenders])
        if self.broken or self._over:
            return None
        if heat.reference in failed:
            failed = dict.fromkeys((heat.reference, *heat.contenders), failed[heat.reference])
        gone = list(failed)
        while gone:
            for stack in gone:
                heat.leave(stack)
            fresh = fill({stack: failed[stack] for stack in gone if not is_late(failed[stack])})
            if not fresh:
                break
            heat.join(fresh)
            self._listener.heat(heat)
            gone = list(more := self._bring(fresh, 1 / POLICY.fills))
            failed |= more
        ran: list[list[Ran]] = []
        lasted = 0.0
        goes_on = True
        while goes_on and (order := heat.order()) and self._left() > lasted:
            swept = self._clock()
            sweep, goes_on = self._sweep(heat, order, failed)
            ran.append(sweep)
            heat.feed(_costs(sweep, [stack for stack in order if stack not in failed]))
            self._listener.standing(heat)
            lasted = self._clock() - swept
            self._let_go(
                stack for stack in order if stack not in heat.live and stack != heat.reference and not heat.wins(stack)
            )
        cut = set(heat.live)
        times = {stack: _clocked(heat, stack, ran).mean for stack in heat.contenders}
        seconds = (self._clock() - began) / len(heat.contenders)
        results = [self._result(heat, stack, failed.get(stack, ""), ran, seconds, stack in cut)
                   for stack in heat.contenders]  # fmt: skip
        return Looked(results, {stack: why for stack, why in failed.items() if not is_late(why)}, times)

    def let_go(self) -> None:
        """End all arms but that of the program as it is."""
        self._let_go(list(self._alive))

    def _sweep(self, heat: Heat, order: Sequence[Stack], failed: dict[Stack, str]) -> tuple[list[Ran], bool]:
        """There and back, and whether the heat goes on; an arm that dies is out. With the reference, or the time, the
        heat ends, and nobody failed for that."""
        steps = block_steps(min(self._starts[stack][1] for stack in order), POLICY.edge_ns, 2 * POLICY.edge_share,
                            heat.objective.shortest_ns)  # fmt: skip
        ran: list[Ran] = []
        for stack in (*order, *reversed(order)):
            if stack in failed:
                continue
            began = self._clock()
            try:
                block = self._arms.block(stack, steps)
                lasted = self._clock() - began
                plain = self._starts.get((), min(self._starts.values()))  # a resumed race may never start the program
                if lasted < POLICY.anew * plain[0]:
                    self._lasted_s, self._stepped_s = self._lasted_s + lasted, self._stepped_s + block.ns / 1e9
                cost = cost_of(block, heat.objective)
                ran.append(Ran(stack, len(block.walls), block.ns, cost, block.peak_bytes, block.samples, block.joules))
                start, step_ns = self._starts[stack]
                self._starts[stack] = start, min(step_ns, block.ns / len(block.walls))
            except ArmError as error:
                self._let_go([stack])
                if error.reason == SPENT:
                    return ran, False
                if stack == heat.reference:
                    self.broken = "" if stack else error.reason
                    return ran, False
                failed[stack] = error.reason
                heat.leave(stack)
        return ran, True

    def _let_go(self, stacks: Iterable[Stack]) -> None:
        self._end([stack for stack in stacks if stack in self._alive and stack])

    def _end(self, gone: Collection[Stack]) -> None:
        self._alive = self._alive.difference(gone)
        self._peaks.update({stack: self._arms.peak(stack) for stack in gone})
        self._arms.end(list(gone))

    def _result(
        self, heat: Heat, stack: Stack, failed: str, ran: Sequence[Sequence[Ran]], seconds: float, cut: bool
    ) -> TrialResult:
        found = heat.standing(stack)
        said = "failed" if failed and not is_late(failed) else heat.verdict(stack)
        samples, time = _samples(heat, stack, ran), _clocked(heat, stack, ran)
        before = samples.step_ns(0)
        reason = failed
        if said == "inconclusive" and not failed:
            pairs = "1 pair" if found.num == 1 else f"{found.num} pairs"
            early = found.num < heat.most and not cut
            reason = f"stopped early after {pairs}: unlikely to help" if early else f"after {pairs}"
            reason += ", when the time for the race was over" if cut else ""
        known = said in SETTLED and before is not None
        return TrialResult(
            remedies=tuple(name for name in stack if name not in heat.reference), onto=heat.reference, verdict=said,
            memory=_speedup(found) if heat.objective.own == "memory" else None,
            energy=_speedup(found) if heat.objective.own == "energy" else None,
            reason=reason, speedup=_speedup(time), baseline_step_ns=before, samples=samples, seconds=seconds,
            realised_ns=before * (1 - math.exp(-time.mean)) if known and before is not None else None,
            peak_bytes=(self._peak(heat.reference), self._peak(stack)),
            step_peak_bytes=(samples.peak(0), samples.peak(1)), step_joules=(samples.energy(0), samples.energy(1)),
        )  # fmt: skip

    def _peak(self, stack: Stack) -> int | None:
        return self._arms.peak(stack) if stack in self._alive else self._peaks.get(stack)


def _costs(ran: Sequence[Ran], stacks: Iterable[Stack]) -> dict[Stack, list[float]]:
    """Return the costs of each arm's blocks in a sweep, of those that made both."""
    found = {stack: [each.cost for each in ran if each.stack == stack] for stack in stacks}
    return {stack: costs for stack, costs in found.items() if len(costs) == 2}


def _clocked(heat: Heat, stack: Stack, ran: Sequence[Sequence[Ran]]) -> anytime.Interval:
    """How much faster an arm is than the reference; where time is not what is compared, from the same sweeps."""
    if not heat.objective.own:
        return heat.standing(stack)
    timed = Heat(heat.reference, heat.contenders)
    for sweep in ran:
        clocked = [each._replace(cost=each.ns / each.steps) for each in sweep]
        timed.feed(_costs(clocked, dict.fromkeys(each.stack for each in sweep)))
    return timed.standing(stack)


def _samples(heat: Heat, stack: Stack, ran: Sequence[Sequence[Ran]]) -> Samples:
    """The blocks of an arm and of its reference, in the sweeps that both were in."""
    rows = [(int(each.stack == stack), each.steps, each.ns, 1, each.peak_bytes, each.samples, each.joules)
            for sweep in ran if any(each.stack == stack for each in sweep)
            for each in sweep if each.stack in (stack, heat.reference)]  # fmt: skip
    return Samples(*zip(*rows, strict=True)) if rows else Samples()


def _speedup(found: anytime.Interval) -> Speedup | None:
    if found.num < anytime.FEWEST or not math.isfinite(found.high):
        return None
    return Speedup(math.exp(found.mean), math.exp(found.low), math.exp(found.high))
