"""The live referee: makes arms of the program, measures stacks of remedies in pairs and has the guard judge them."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from gobrrr.capture import schedule
from gobrrr.guard.judging import judge
from gobrrr.guard.model import Guarded
from gobrrr.guard.observation import Observation
from gobrrr.guard.schedule import twin_steps
from gobrrr.guard.structure import same_data
from gobrrr.remedies import registry
from gobrrr.trial import lockstep, protocol
from gobrrr.trial.arm import SPENT, START_S, Arm, ArmError, Block
from gobrrr.trial.field import Field
from gobrrr.trial.heat import Stack
from gobrrr.trial.limits import AT_HOME, Limits
from gobrrr.trial.lockstep import Progress, Side
from gobrrr.trial.measured import Measured
from gobrrr.trial.rounds import Rounds
from gobrrr.trial.schedule import OVERRUN
from gobrrr.trial.search import Plan

SEEDS = (1, 2)
DETAIL_FACTOR = 20.0
"""A watched step takes this many times a plain one, at most: tensors are read, hashed and summed."""
TRIAL_SECONDS = 90.0
HELD = 3.0
"""Times what an arm held that a watched one may need, for those that are watched beside each other."""


class Watched(NamedTuple):
    """A run of the program that the guard watches. `again`: what the program itself does otherwise the next time."""

    stack: Stack = ()
    float64: bool = False
    again: bool = False
    seed: int = 0


PLAIN, AGAIN, TRUE = Watched(), Watched(again=True), Watched(float64=True)


class Program(NamedTuple):
    """What is tuned: its command, the folder where the user starts it, its plain step (ns), which loop's."""

    command: tuple[str, ...]
    source: Path
    step_ns: float = 0.0
    loop: str = ""
    limits: Limits = AT_HOME
    """What its arms may write to."""
    threads: int = 0
    """Of its ops; 0 where not known, then as many as cores."""
    bytes: int = 0
    """Most that it holds of this machine's memory; 0 where not known, or where a device holds its tensors."""

    def abreast(self, cores: int) -> int:
        """So many of it can compute at once without taking each other's cores."""
        return max(1, cores // (self.threads or cores))


class LiveReferee:
    """Measures and guards. The baseline's own observations are taken once, when the guard is first asked."""

    def __init__(
        self, program: Program, folder: Path, *, seed: int = 0, seconds: float = TRIAL_SECONDS,
        progress: Progress | None = None, until: float = math.inf, overrun: float = OVERRUN,
    ) -> None:  # fmt: skip
        """`seconds` bounds one comparison, `overrun` times them where that is too short for any verdict; `until` (of
        time.monotonic) all that it ever runs: what is alive then is killed, and nothing starts any more."""
        self._program, self._folder, self._seed, self._seconds = program, folder, seed, seconds
        self._progress, self._until, self._overrun = progress, until, overrun
        self._num = 0
        self._seen: dict[Watched, Observation | ArmError] = {}
        self._guards = itertools.count()
        self._alive: dict[Stack, Arm] = {}
        self._all: list[Arm] = []
        self._watching: list[Arm] = []
        self._cores = schedule.cores()
        self._turn = threading.Semaphore(program.abreast(self._cores))
        self.field = Field(lambda place, stack: self._side(place, stack), folder / "field", self._cores, program.bytes)
        self._watch: threading.Timer | None = None
        if math.isfinite(until):
            self._watch = threading.Timer(max(0.0, until - time.monotonic()), self.stop)
            self._watch.daemon = True
            self._watch.start()

    def measure(self, plan: Plan, seconds: float | None = None) -> Measured:
        """Baseline stack against candidate stack, in pairs of fresh processes."""
        self._num += 1
        folder = self._folder / f"trial{self._num}"
        sides = [self._side(folder / name, stack) for name, stack in
                 (("baseline", plan.baseline), ("candidate", plan.candidate))]  # fmt: skip
        found = lockstep.measure(
            *sides, seed=self._seed + self._num, progress=self._progress,
            seconds=self._seconds if seconds is None else seconds, rounds=partial(Rounds, overrun=self._overrun),
        )  # fmt: skip
        lockstep.clear(folder)
        if found.verdict == "failed" and time.monotonic() > self._until:
            return Measured(verdict="inconclusive", reason=SPENT)
        return found

    def start(self, stacks: Sequence[Stack], seconds: float) -> dict[Stack, str]:
        """Bring arms of a race up; the reasons of those that did not come. Beside the first ones, while most cores are
        idle, the untouched program is watched for the guard."""
        room = psutil.virtual_memory().available > (len(stacks) + HELD) * self._program.bytes > 0
        first = PLAIN not in self._seen and room
        return self.field.start(stacks, seconds, self._kill, partial(self._ahead, seconds) if first else None)

    def _ahead(self, seconds: float) -> None:
        """What the guard will ask for first; for so long at most, else it is left to the guard."""
        late = threading.Timer(seconds, self._kill_watched)
        late.start()
        found = self._watched(PLAIN)
        late.cancel()
        if isinstance(found, Observation) or found.reason != SPENT:
            self._seen[PLAIN] = found

    def _kill_watched(self) -> None:
        for arm in self._watching:
            arm.kill()

    def block(self, stack: Stack, steps: int) -> Block:
        """A block of one of them. Raises ArmError."""
        return self.field.block(stack, steps)

    def places(self) -> int:
        """Arms that there is memory for."""
        return self.field.places()

    def started(self, stack: Stack) -> tuple[float, float]:
        """Seconds that it took until it was warm, and ns of its step."""
        side = self.field.side(stack)
        return side.ready_seconds, side.step_ns

    def peak(self, stack: Stack) -> int | None:
        """Most bytes that it held; None where it is gone."""
        return (self.field.side(stack).peak_bytes or None) if stack in self.field else None

    def end(self, stacks: Sequence[Stack] | None = None) -> None:
        """End these arms of the race, or all."""
        self.field.end(stacks)

    def stop(self) -> None:
        """Kill whatever runs, and start nothing any more; from any thread. `close` is still to be called."""
        self._until = -math.inf
        for arm in list(self._all):
            arm.kill()

    def close(self) -> None:
        """End whatever runs, for good."""
        if self._watch is not None:
            self._watch.cancel()
        self.field.close()

    def _kill(self, stack: Stack) -> None:
        if stack in self._alive:
            self._alive[stack].kill()

    def _side(self, folder: Path, stack: Stack) -> Side:
        def made(place: Path) -> Arm:
            self._alive[stack] = self._arm(place, stack)
            return self._alive[stack]

        late = {name for name in stack if registry.remedy(name).late}
        return Side(made, folder, stack, late, self._turn)

    def _arm(self, folder: Path, stack: Sequence[str]) -> Arm:
        """Raises ArmError when the time is over."""
        if time.monotonic() > self._until:
            raise ArmError(SPENT)
        env = registry.environment(stack)
        program, limits = self._program, self._program.limits
        limits = limits._replace(caches=limits.caches or self._folder / "caches")
        arm = Arm(program.command, folder, stack, source=program.source, env=env, within=limits, loop=program.loop)
        self._all.append(arm)
        return arm

    def guard(self, stack: Stack) -> Guarded:
        """The numbers of a stack against those of the untouched program; unverified where the time ended meanwhile, for
        the runs that were cut may be those that would have spoken for it."""
        found = self._judged(stack)
        return found if found.green or time.monotonic() <= self._until else Guarded(reasons=(SPENT,))

    def _judged(self, stack: Stack) -> Guarded:
        remedies = [registry.remedy(name) for name in stack]
        lowering = tuple(r.name for r in remedies if r.precision)
        naive = Watched(lowering if lowering != stack else ())
        try:
            baseline = self._observe(PLAIN)
            exact = all(remedy.safety == "exact" for remedy in remedies)
            self._together([Watched(stack), *([] if exact else [TRUE, naive])])
            candidate = self._observe(Watched(stack))
            equal = judge(baseline, candidate, again=baseline, reference=baseline)
            if equal.verdict == "exact":  # bit for bit: so the program repeats itself, and other runs can say no more
                return equal
            true, lowered = self._tried(TRUE), self._tried(naive) if naive.stack else None
            precision = next((r.precision for r in remedies if r.precision), "")

            def judged(again: Observation, seeds: Sequence[Observation] = ()) -> Guarded:
                """What lowers the precision on some chips keeps it on others: so first as if it did not."""
                same = partial(judge, baseline, candidate, again=again, reference=true, seeds=seeds,
                               order_may_change=_draws_otherwise(stack))  # fmt: skip
                found = same()
                return same(naive=lowered, precision=precision) if precision and not found.green else found

            repeats = any(run is not None and same_data(baseline, run) for run in (candidate, true))
            if repeats and (found := judged(baseline)).green:  # as if it made no noise of its own: the strictest
                return found
            others = [Watched(seed=seed) for seed in SEEDS]
            self._together([AGAIN, *others])
            again = self._observe(AGAIN)
            equal = judge(baseline, candidate, again=again, reference=baseline)
            if equal.verdict == "exact":  # but for what the program itself does otherwise each time: prints times, say
                return equal
        except ArmError as error:
            return Guarded(reasons=(f"the program could not be watched: {error.reason}",))
        found = judged(again)
        if found.green:  # other seeds can only widen the band that it kept to
            return found
        return judged(again, [run for other in others if (run := self._tried(other)) is not None])

    def _together(self, wanted: Sequence[Watched]) -> None:
        """Take the observations that will be asked for beside each other, where memory allows it: none is timed."""
        wanted = [each for each in dict.fromkeys(wanted) if each not in self._seen]
        largest = max((arm.peak_bytes for arm in self._all), default=0)
        room = psutil.virtual_memory().available // max(1, HELD * largest)
        with ThreadPoolExecutor(int(max(1, min(self._cores, room, len(wanted))))) as pool:
            try:
                self._seen.update(zip(wanted, pool.map(self._watched, wanted), strict=True))
            except BaseException:  # Ctrl-C: arms have sessions of their own and do not hear it
                self.stop()
                raise

    def _tried(self, wanted: Watched) -> Observation | None:
        """A run that may fail: a program need not be able to compute in float64."""
        try:
            return self._observe(wanted)
        except ArmError:
            return None

    def _observe(self, wanted: Watched) -> Observation:
        """An observation, each taken once. Raises ArmError."""
        if wanted not in self._seen:
            self._seen[wanted] = self._watched(wanted)
        found = self._seen[wanted]
        if isinstance(found, ArmError):
            raise found
        return found

    def _watched(self, wanted: Watched) -> Observation | ArmError:
        folder = self._folder / f"guard{next(self._guards)}"
        steps = twin_steps(self._program.step_ns)
        arm = None
        try:
            arm = self._arm(folder, wanted.stack)
            self._watching.append(arm)
            found = arm.observe(
                steps, seed=wanted.seed, float64=wanted.float64,
                seconds=START_S + DETAIL_FACTOR * steps * self._program.step_ns / 1e9,
                states=None if wanted.seed or _draws_otherwise(wanted.stack) else self._states, keeps=wanted == PLAIN,
            )  # fmt: skip
            if wanted == PLAIN:
                (folder / protocol.STATES).rename(self._states)
            return found
        except ArmError as error:
            return ArmError(SPENT) if time.monotonic() > self._until else error
        finally:
            if arm is not None:
                self._watching.remove(arm)
                arm.end()
            lockstep.clear(folder)

    @property
    def _states(self) -> Path:
        """The baseline's own states, kept by its first watched run; those from other seeds have other ones."""
        return self._folder / protocol.STATES


def _draws_otherwise(stack: Sequence[str]) -> bool:
    """Whether a stack may change the order of samples or draws: then it walks its own way, from its own weights, since
    what it does with other data at the baseline's weights would say nothing of where it goes."""
    return any(registry.remedy(name).safety == "order" for name in stack)
