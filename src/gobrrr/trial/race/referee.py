"""The live referee: makes arms of the program, measures stacks of remedies in pairs and has the guard judge them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

import msgspec
import psutil

from gobrrr.capture.steps import vitals
from gobrrr.errors import GobrrrError
from gobrrr.guard.model.verdict import Guarded
from gobrrr.guard.verdicts import edits, timed
from gobrrr.machine.gauges import counter
from gobrrr.recording.model import event_kinds
from gobrrr.remedies import registry
from gobrrr.trial.arm.arm import REPLAYING, SPENT, TIMED, Arm, ArmError
from gobrrr.trial.arm.live_arms import Field
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.arm.side import Side, clear
from gobrrr.trial.arm.whole import WholeRun
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.reading import together
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.rule import Gate
from gobrrr.trial.race import lockstep
from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.guard_runs import Guarding, draws_otherwise
from gobrrr.trial.race.headroom import REPLAYED
from gobrrr.trial.race.lockstep import ROOM, Progress
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.receipt.receipt import Measured
from gobrrr.trial.sandbox import limits
from gobrrr.trial.sandbox.limits import AT_HOME, Limits
from gobrrr.trial.statistics.objective import TIME, Objective
from gobrrr.trial.statistics.rounds import Rounds

TRIAL_SECONDS = 90.0  # seconds of a trial, as in docs/decisions/0013-the-process-is-the-unit.md
HELD = 3.0
"""Memory that a watched arm may need over what an arm held, for those that are watched beside each other."""
WATCHED_COPIES = 2
"""Copies of the program that a watched run may take of a device: it keeps tensors of each step to look at them."""


class Program(NamedTuple):
    """Program to tune: its command, the folder where the user starts it, its plain step (ns), which loop's."""

    command: tuple[str, ...]
    source: Path
    step_ns: float = 0.0
    loop: str = ""
    limits: Limits = AT_HOME
    """Places that its arms may write to."""
    threads: int = 0
    """Threads of its ops; 0 where not known, then as many as cores."""
    bytes: int = 0
    """Most that it holds of this machine's memory; 0 where not known."""

    options: registry.Options = registry.NO_OPTIONS
    """Options with which remedies are applied to it."""
    between_ns: float = 0.0
    """Time in ns that other loops take between two of its steps."""
    copies: int = 0
    """Copies of it that fit on its device at once; 0 without one."""
    base: ProgramEdit | None = None
    """The change that makes the folder the program as it is, where that is another commit; edits are of the folder."""
    edits: Mapping[str, EditOnTrial] = MappingProxyType({})
    """Edits on trial, by their names in a combination."""

    def abreast(self, cores: int) -> int:
        """So many of it can compute at once without taking each other's cores."""
        return max(1, cores // (self.threads or cores))


class LiveReferee:
    """Measures in arms, and has the guard judge by runs of its own (guarding.Means)."""

    def __init__(
        self, program: Program, folder: Path, *, seed: int = 0, seconds: float = TRIAL_SECONDS,
        progress: Progress | None = None, until: float = math.inf, overrun: float = POLICY.overrun,
        objective: Objective = TIME,
    ) -> None:  # fmt: skip
        """`seconds` bounds one comparison, `overrun` times them where that is too short for any verdict; `until` (of
        time.monotonic) all that it ever runs: what is alive then is killed, and nothing starts any more."""
        self._program, self._folder, self._seed, self._seconds = program, folder, seed, seconds
        self._progress, self._until, self._overrun, self._objective = progress, until, overrun, objective
        self._counter = counter.opened() if objective.own == "energy" else None
        self._num = 0
        self._caches = program.limits.caches or folder / "caches"
        self._alive: dict[Stack, Arm] = {}
        self._whole_rows: dict[Stack, tuple[float, float]] = {}
        """Samples in a call of the program and of it with an edit, by whole runs."""
        self._all: list[Arm] = []
        self._cores = vitals.cores()
        self._turn = threading.Semaphore(program.abreast(self._cores))
        self.field = Field(lambda place, stack: self._side(place, stack), folder / "field", self._cores, program.bytes,
                           copies=program.copies)  # fmt: skip
        self.guarding = Guarding(self, folder, program.step_ns + program.between_ns, program.edits)
        self._watch: threading.Timer | None = None
        if math.isfinite(until):
            self._watch = threading.Timer(max(0.0, until - time.monotonic()), self.stop)
            self._watch.daemon = True
            self._watch.start()

    def measure(self, plan: Plan, seconds: float | None = None) -> Measured:
        """Baseline stack against candidate stack, in pairs of fresh processes."""
        limits.mend(self._caches)
        self._num += 1
        folder = self._folder / f"trial{self._num}"
        sides = [self._side(folder / name, stack) for name, stack in
                 (("baseline", plan.baseline), ("candidate", plan.candidate))]  # fmt: skip
        found = lockstep.measure(
            *sides, seed=self._seed + self._num, progress=self._progress,
            seconds=self._seconds if seconds is None else seconds, rounds=partial(Rounds, overrun=self._overrun),
            objective=self._objective.of(bool(self._rows_per_call(plan.candidate))), pairs=self.pairs(),
        )  # fmt: skip
        clear(folder)
        if found.verdict == "failed" and self.is_over():
            return Measured(verdict="inconclusive", reason=SPENT)
        return found

    def pairs(self) -> int:
        """Pairs of arms that may start beside each other once those of the race are gone: each that starts leaves
        another core idle, their first steps go abreast, and memory has room for all."""
        abreast = self._program.copies or self._program.abreast(self._cores)
        most = min(POLICY.fewest_rounds, self._cores // 4, abreast // 2)
        if most < 2 or not (held := self._largest()):  # asked before each sweep: memory only where it decides
            return 1
        fitting = psutil.virtual_memory().available / (ROOM * held) + len(self.field)
        return int(max(1, min(most, fitting // 2)))

    def start(self, stacks: Sequence[Stack], seconds: float) -> dict[Stack, str]:
        """Bring arms of a race up; the reasons of those that did not come. Beside the first ones, while most cores are
        idle, the untouched program is watched for the guard, as the first contender will be held against it, and as
        others will where there are cores and memory for two such runs."""
        limits.mend(self._caches)
        first = next((names for stack in stacks if (names := _remedies(stack))), ())
        wanted = [first, ()][: self._watched_beside(len(stacks))]
        ahead = partial(self.guarding.ahead, POLICY.first_step * seconds, wanted)
        return self.field.start(stacks, seconds, self._kill, ahead if wanted and not self.guarding.seen else None)

    def _watched_beside(self, arms: int) -> int:
        """Runs, two at most, that may be watched while so many arms start: two where that leaves them cores."""
        held = self._program.bytes
        fitting = (psutil.virtual_memory().available / held - arms) / HELD if held else 0.0
        fitting = max(0.0, min(fitting, self.field.copies_left(arms) // WATCHED_COPIES))
        abreast = self._program.copies or self._program.abreast(self._cores)
        return int(min(fitting, 2 if self._cores >= 2 * arms and abreast > 1 else 1))

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

    @property
    def options(self) -> registry.Options:
        """Options with which remedies are applied."""
        return self._program.options

    def give(self, options: registry.Options) -> None:
        """Set the options of remedies for arms that start from now on."""
        self._program = self._program._replace(options=options)

    def taken(self) -> dict[str, tuple[str, ...]]:
        """Lines of the user's at which remedies took hold, and of nothing else."""
        told = [(name, *place) for arm in self._all for name, places in arm.places.items() for place in places.items()]
        left = {(name, place) for name, place, taken in told if not taken}
        found = sorted({(name, place) for name, place, _ in told} - left)
        return {name: tuple(place for each, place in found if each == name) for name, _ in found}

    def held(self, stack: Stack) -> int:
        """Bytes that an arm of the race and its workers hold now, what they share counted once."""
        return self.field.side(stack).held() if stack in self.field else 0

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
        if self._counter is not None:
            self._counter.close()

    def _kill(self, stack: Stack) -> None:
        if stack in self._alive:
            self._alive[stack].kill()

    def _side(self, folder: Path, stack: Stack) -> Side:
        def made(place: Path) -> Arm:
            self._alive[stack] = self.arm(place, stack)
            return self._alive[stack]

        said = tuple(name for name in stack if name not in self._program.edits)  # those that must say they took hold
        late = {name for name in _remedies(said) if registry.remedy(name).late}
        return Side(made, folder, said, late, self._turn)

    def is_over(self) -> bool:
        """Whether all of the time is spent."""
        return time.monotonic() > self._until

    def at_once(self) -> int:
        """Watched runs that there are cores and memory for; one where it is not known what they hold."""
        if not (largest := self._largest()):
            return 1
        here = psutil.virtual_memory().available // (HELD * largest)
        return int(max(1, min(self._cores, here, self.field.copies_left() // WATCHED_COPIES)))

    def _largest(self) -> int:
        """Most bytes that an arm is known to hold of this machine's memory; 0 where that of none is."""
        held = self._program.bytes
        return max(held, *(arm.peak_bytes for arm in self._all), 0) if held else 0

    def whole(self, folder: Path, stack: Stack) -> WholeRun:
        """A new arm for a run from beginning to end, likewise."""
        return cast(WholeRun, self.arm(folder, stack, WholeRun))

    def arm(self, folder: Path, stack: Stack, kind: type[Arm] = Arm) -> Arm:
        """A new arm of the program, not started. Raises ArmError when the time is over."""
        if self.is_over():
            raise ArmError(SPENT)
        program, names = self._program, [name for name in _remedies(stack) if name not in self._program.edits]
        tried = [program.edits[name].edit for name in _remedies(stack) if name in program.edits]
        env = registry.environment(names, program.options)
        try:
            edit = together(tried, program.source) if len(tried) > 1 else next(iter(tried), program.base)
            command = edit.command(program.command) if edit is not None else program.command
        except GobrrrError as error:
            raise ArmError(error.message) from None
        within = program.limits._replace(caches=self._caches)
        # A model that is made anew, quantised say, has another number than the program's.
        is_another = self._gates(stack) and program.loop.startswith(f"{event_kinds.FORWARDS}:")
        variables = env | dict(edit.env if edit is not None else {})
        arm = kind(command, folder, names, source=program.source, env=variables, within=within,
                   loop="" if is_another else program.loop, objective=self._objective, edit=edit,
                   timed=REPLAYING if stack == REPLAYED else TIMED, counter=self._counter,
                   account=2 if any(each.gates for each in program.edits.values()) else int(bool(program.edits)),
                   )  # fmt: skip
        self._all.append(arm)
        return arm

    def _rows_per_call(self, stack: Stack) -> tuple[float, float] | None:
        """Samples in a call where an inference is batched otherwise; what learns by its own update is none."""
        learns = self._program.loop.startswith(f"{event_kinds.BACKWARDS}:")
        return None if learns else self._whole_rows.get(stack) or self.guarding.rows_per_call(stack)

    def with_account(self, guarded: Guarded, found: Measured, stack: Stack) -> Guarded:
        """The guard's verdict on a combination with an edit, with what its timed runs did, by their accounts."""
        tried = self._tried(stack)
        if found.speedup is None or not tried:
            return guarded
        accounts = found.accounts
        accepted = {word for each in tried for word in each.accepted}
        others = [registry.remedy(name) for name in stack if name not in self._program.edits]
        accepted |= {"order", "samples", "random"} if any(map(draws_otherwise, others)) else set()
        accepted |= {"precision"} if any(each.precision for each in others) else set()
        # other masks are other draws of the stream from which a loader may draw as well
        accepted |= {"random"} if any(each.judged_without_dropout for each in others) else set()
        if self._gates(stack):  # the same work is asked for, not the same numbers
            accepted |= {"precision"}
            accounts = timed.without_texts(accounts[0]), timed.without_texts(accounts[1])
        judged = edits.with_timed(guarded, timed.checks(*accounts, self._rows_per_call(stack)), accepted)
        made = (max((row.step for account in side for row in account.rows), default=0) for side in found.accounts)
        return msgspec.structs.replace(judged, steps=min(made))

    def guard(self, stack: Stack, milder: Stack = ()) -> Guarded:
        """The numbers of a stack against those of the untouched program; unverified where the time ended meanwhile, for
        the runs that were cut may be those that would have spoken for it. `milder`: what may be asked for next."""
        limits.mend(self._caches)
        try:
            if (gated := self.gated(stack, self._seconds)) is not None:
                return gated
        except ArmError as error:
            return Guarded(reasons=(error.reason,))
        found = self.guarding.judged(stack, milder)
        return found if found.green or not self.is_over() else Guarded(reasons=(SPENT,))

    def _tried(self, stack: Stack) -> list[EditOnTrial]:
        return [self._program.edits[name] for name in stack if name in self._program.edits]

    def _gates(self, stack: Stack) -> tuple[Gate, ...]:
        return tuple(dict.fromkeys(gate for each in self._tried(stack) for gate in each.gates))

    def gated(self, stack: Stack, seconds: float) -> Guarded | None:
        """The user's gates in place of the guard, in so many seconds; None where the stack has none. Raises ArmError
        where it does not run, GobrrrError where the program as it is cannot be measured."""
        if not (gates := self._gates(stack)):
            return None
        accepted = {word for each in self._tried(stack) for word in each.accepted}
        found, rows = pairs.judged((self.whole, self.is_over), self._folder, stack, gates, accepted, seconds)
        if rows is not None and not rows[0].updates:
            calls = [(row.trained.rows + row.evaluated.rows, row.trained.calls + row.evaluated.calls) for row in rows]
            first, second = (num / max(1, called) for num, called in calls)
            self._whole_rows |= {stack: (first, second)} if first != second else {}
        return found


def _remedies(stack: Stack) -> Stack:
    """Return the remedies of an arm: where batches are replayed it has none."""
    return () if stack == REPLAYED else stack
