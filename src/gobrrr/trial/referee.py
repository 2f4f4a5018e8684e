"""The live referee: makes arms of the program, measures stacks of remedies in pairs and has the guard judge them."""

from __future__ import annotations

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
from gobrrr.guard.schedule import TWIN_STEPS
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
WATCHED = 3.0
"""Times what an arm held that a watched one may need, for those that are watched beside each other."""


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
        self._seen: dict[tuple[tuple[str, ...], int, bool], Observation | ArmError] = {}
        self._alive: dict[Stack, Arm] = {}
        self._all: list[Arm] = []
        cores = schedule.cores()
        self._abreast = program.abreast(cores)
        self._turn = threading.Semaphore(self._abreast)
        self.field = Field(lambda place, stack: self._side(place, stack), folder / "field", cores)
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
        """Bring arms of a race up; the reasons of those that did not come."""
        return self.field.start(stacks, seconds, self._kill)

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

    def _side(self, folder: Path, stack: tuple[str, ...]) -> Side:
        late = {name for name in stack if registry.remedy(name).late}
        return Side(lambda place: self._arm(place, stack), folder, stack, late, self._turn)

    def _arm(self, folder: Path, stack: Sequence[str]) -> Arm:
        """Raises ArmError when the time is over."""
        if time.monotonic() > self._until:
            raise ArmError(SPENT)
        env = registry.environment(stack)
        program, limits = self._program, self._program.limits
        limits = limits._replace(caches=limits.caches or self._folder / "caches")
        arm = Arm(program.command, folder, stack, source=program.source, env=env, within=limits, loop=program.loop)
        self._alive[tuple(stack)] = arm
        self._all.append(arm)
        return arm

    def guard(self, stack: tuple[str, ...]) -> Guarded:
        """The numbers of a stack against those of the untouched program; unverified where the time ended meanwhile, for
        the runs that were cut may be those that would have spoken for it."""
        found = self._judged(stack)
        return found if found.green or time.monotonic() <= self._until else Guarded(reasons=(SPENT,))

    def _judged(self, stack: tuple[str, ...]) -> Guarded:
        remedies = [registry.remedy(name) for name in stack]
        lowering = tuple(r.name for r in remedies if r.precision)
        try:
            baseline = self._observe(())
            self._together(stack, lowering)
            candidate = self._observe(stack)
            equal = judge(baseline, candidate, again=baseline, reference=baseline)
            if equal.verdict == "exact":  # bit for bit: so the program repeats itself, and other runs can say no more
                return equal
            again = self._observe((), run=1)
            equal = judge(baseline, candidate, again=again, reference=baseline)
            if equal.verdict == "exact":  # but for what the program itself does otherwise each time: prints times, say
                return equal
        except ArmError as error:
            return Guarded(reasons=(f"the program could not be watched: {error.reason}",))
        judged = partial(
            judge, baseline, candidate, again=again, reference=self._tried(float64=True),
            order_may_change=_draws_otherwise(stack),
        )  # fmt: skip
        found = judged()
        if found.green:  # other seeds can only widen the band that it kept to
            return found
        # What lowers the precision on some chips keeps it on others; where its rounding explains all it needs no seeds.
        naive = self._tried(stack=lowering) if lowering and lowering != stack else None
        if lowering:
            judged = partial(judged, naive=naive, precision=next(r.precision for r in remedies if r.precision))
            found = judged()
        if found.green:
            return found
        seeds = [run for seed in SEEDS if (run := self._tried(run=seed + 1, seed=seed)) is not None]
        return judged(seeds=seeds)

    def _together(self, stack: Stack, lowering: Stack) -> None:
        """Take the observations that will be asked for beside each other, where cores and memory allow it: none is
        timed."""
        if self._abreast == 1:
            return
        wanted: list[tuple[Stack, int, bool]] = [(stack, 0, False)]
        if any(registry.remedy(name).safety != "exact" for name in stack):
            wanted += [((), 1, False), ((), 0, True), *([(lowering, 0, False)] if lowering not in ((), stack) else [])]
        wanted = [key for key in wanted if key not in self._seen]
        largest = max((arm.peak_bytes for arm in self._all), default=0)
        if psutil.virtual_memory().available < WATCHED * len(wanted) * largest:
            return
        with ThreadPoolExecutor(max(1, min(self._abreast, len(wanted)))) as pool:
            try:
                runs = [pool.submit(self._watched, key[0], 0, key[2], f"watched{n}") for n, key in enumerate(wanted)]
                self._seen.update({key: run.result() for key, run in zip(wanted, runs, strict=True)})
            except BaseException:  # Ctrl-C: arms have sessions of their own and do not hear it
                self.stop()
                raise

    def _tried(
        self, *, stack: tuple[str, ...] = (), run: int = 0, seed: int = 0, float64: bool = False
    ) -> Observation | None:
        """A run that may fail: a program need not be able to compute in float64."""
        try:
            return self._observe(stack, run=run, seed=seed, float64=float64)
        except ArmError:
            return None

    def _observe(self, stack: tuple[str, ...], run: int = 0, seed: int = 0, float64: bool = False) -> Observation:
        """An observation, each taken once. Raises ArmError."""
        key = (stack, run, float64)
        if key not in self._seen:
            self._seen[key] = self._watched(stack, seed, float64)
        found = self._seen[key]
        if isinstance(found, ArmError):
            raise found
        return found

    def _watched(self, stack: tuple[str, ...], seed: int, float64: bool, name: str = "") -> Observation | ArmError:
        self._num += 1
        folder = self._folder / (name or f"guard{self._num}")
        seconds = START_S + DETAIL_FACTOR * TWIN_STEPS * self._program.step_ns / 1e9
        keeps = not stack and not float64 and not seed and not self._states.exists()
        arm = None
        try:
            arm = self._arm(folder, stack)
            found = arm.observe(
                TWIN_STEPS, seed=seed, float64=float64, seconds=seconds,
                states=None if seed or _draws_otherwise(stack) else self._states, keeps=keeps,
            )  # fmt: skip
            if keeps:
                (folder / protocol.STATES).rename(self._states)
            return found
        except ArmError as error:
            return ArmError(SPENT) if time.monotonic() > self._until else error
        finally:
            if arm is not None:
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
