"""The live referee: makes arms of the program, measures stacks of remedies in pairs and has the guard judge them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gobrrr.guard.judging import judge
from gobrrr.guard.model import Guarded
from gobrrr.guard.observation import Observation
from gobrrr.guard.schedule import TWIN_STEPS
from gobrrr.remedies import registry
from gobrrr.trial import lockstep, protocol
from gobrrr.trial.arm import START_S, Arm, ArmError
from gobrrr.trial.limits import AT_HOME, Limits
from gobrrr.trial.lockstep import Progress, Side
from gobrrr.trial.rounds import Rounds
from gobrrr.trial.search import Plan
from gobrrr.trial.statistics import LEVEL
from gobrrr.trial.tuning import Measured

SEEDS = (1, 2)
DETAIL_FACTOR = 20.0
"""A watched step takes this many times a plain one, at most: tensors are read, hashed and summed."""
TRIAL_SECONDS = 90.0
FINAL = 2.0
"""Times a trial's seconds for the last one: a recipe that is not confirmed is lost, with all that was spent on it."""


class Program(NamedTuple):
    """What is tuned: its command, the folder where the user starts it, its plain step (ns), which loop's."""

    command: tuple[str, ...]
    source: Path
    step_ns: float = 0.0
    loop: str = ""
    limits: Limits = AT_HOME
    """What its arms may write to."""


class LiveReferee:
    """Measures and guards. The baseline's own observations are taken once, when the guard is first asked."""

    def __init__(
        self, program: Program, folder: Path, *, seed: int = 0, seconds: float = TRIAL_SECONDS,
        progress: Progress | None = None, level: float = LEVEL,
    ) -> None:  # fmt: skip
        """`level`: of an addition's comparison; divided by how many are tried, their errors together stay below LEVEL
        (Bonferroni; Holm's test then rejects every one of them too). `seconds` bounds one comparison."""
        self._level = level
        self._program, self._folder, self._seed, self._seconds = program, folder, seed, seconds
        self._progress = progress
        self._num = 0
        self._seen: dict[tuple[tuple[str, ...], int, bool], Observation | ArmError] = {}

    def measure(self, plan: Plan) -> Measured:
        """Baseline stack against candidate stack, in pairs."""
        self._num += 1
        folder = self._folder / f"trial{self._num}"
        sides = [self._side(folder / name, stack) for name, stack in
                 (("baseline", plan.baseline), ("candidate", plan.candidate))]  # fmt: skip
        found = lockstep.measure(
            *sides, seed=self._seed + self._num, progress=self._progress,
            seconds=self._seconds * (FINAL if plan.purpose == "final" else 1.0),
            rounds=partial(Rounds, level=self._level if plan.purpose == "add" else LEVEL),
        )  # fmt: skip
        lockstep.clear(folder)
        return found

    def _side(self, folder: Path, stack: tuple[str, ...]) -> Side:
        return Side(lambda place: self._arm(place, stack), folder, stack)

    def _arm(self, folder: Path, stack: Sequence[str]) -> Arm:
        env = registry.environment(stack)
        program, limits = self._program, self._program.limits
        limits = limits._replace(caches=limits.caches or self._folder / "caches")
        return Arm(program.command, folder, stack, source=program.source, env=env, within=limits, loop=program.loop)

    def guard(self, stack: tuple[str, ...]) -> Guarded:
        """The numbers of a stack against those of the untouched program."""
        remedies = [registry.remedy(name) for name in stack]
        lowering = tuple(r.name for r in remedies if r.precision)
        try:
            baseline, candidate = self._observe(()), self._observe(stack)
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
        seeds = [run for seed in SEEDS if (run := self._tried(run=seed + 1, seed=seed)) is not None]
        found = judged(seeds=seeds)
        if found.green or not lowering:  # what lowers the precision on some chips keeps it on others
            return found
        naive = self._tried(stack=lowering) if lowering != stack else None
        return judged(seeds=seeds, naive=naive, precision=next(r.precision for r in remedies if r.precision))

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

    def _watched(self, stack: tuple[str, ...], seed: int, float64: bool) -> Observation | ArmError:
        self._num += 1
        folder = self._folder / f"guard{self._num}"
        arm = self._arm(folder, stack)
        seconds = START_S + DETAIL_FACTOR * TWIN_STEPS * self._program.step_ns / 1e9
        keeps = not stack and not float64 and not seed and not self._states.exists()
        try:
            found = arm.observe(
                TWIN_STEPS, seed=seed, float64=float64, seconds=seconds,
                states=None if seed or _draws_otherwise(stack) else self._states, keeps=keeps,
            )  # fmt: skip
            if keeps:
                (folder / protocol.STATES).rename(self._states)
            return found
        except ArmError as error:
            return error
        finally:
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
