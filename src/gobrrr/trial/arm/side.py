"""One side of a comparison: an arm, started again where its program comes to its end, and what starting costs."""

from __future__ import annotations

import itertools
import shutil
import statistics as figures
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Protocol

from gobrrr.guard.model.account import Account
from gobrrr.recording.model.warmup import warmup
from gobrrr.trial.arm.arm import ArmError, require_hold
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.receipt.receipt import Compiled

WARM_STEPS, MOST_WARM_STEPS = 10, 200
WARM_S = 4.0
"""Seconds of warm-up after which LEAST_WARM steps are enough: what takes so long is no matter of caches any more."""
LEAST_WARM = 4  # steps of a warm-up; proposed: the first compile and fill caches; step times of slow programs
WARM_BAND = 0.15
"""Halves of the last WARM_STEPS steps agree within it: the arm is warm."""
LEVEL_S = 2.0
"""Seconds that an arm which has made fewer steps than others may take to catch up with them."""
TOO_SHORT = "the program is too short: it ended while it was still warming up"
MOST_RESTARTS = 20  # of one side; proposed: more starts than steps are no measurement; counts on short programs
AT_ONCE = nullcontext()
"""No arm waits for its turn."""


class Runner(Protocol):
    """Methods of an arm that the referee needs; `arm.Arm` is one, tests have others."""

    applied: dict[str, str]
    declined: dict[str, str]
    start_seconds: float
    peak_bytes: int

    def start(self, seconds: float = ...) -> None: ...

    def run(self, steps: int, expected_ns: float | None = None) -> Block: ...

    def end(self) -> None: ...

    def alive(self) -> bool: ...

    def resident(self) -> int: ...

    def held(self) -> int: ...

    def wanting(self) -> int: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Side:
    """One of the two stacks: its arm, started again where the program came to its end, and what starting costs."""

    def __init__(
        self, make: Callable[[Path], Runner], folder: Path, remedies: tuple[str, ...], late: Collection[str] = (),
        turn: AbstractContextManager[object] = AT_ONCE, warm_steps: int = 0,
    ) -> None:  # fmt: skip
        """`warm_steps`: after so many it is taken to be warm; 0: when they agree. `late`: remedies that may take hold
        after the first step, in an evaluation say. `turn`: held while it warms up: threads of OpenMP that wait for a
        core that another arm has make steps ten times as long. For the same reason arms that come up beside each other
        all make their first step before one of them warms up."""
        self._turn = turn
        self._make, self._folder, self._remedies, self._late = make, folder, remedies, late
        self._numbers = itertools.count(1)  # whose next() no thread can interrupt
        self._arm: Runner | None = None
        self._ahead: list[Runner] = []
        self.accounts: list[Account] = []
        """One of each of its processes so far, where those are kept."""
        self._of_ranks: list[Account] = []
        """Those of the other ranks of its arms that have ended."""
        self.processes = 0
        """Processes that were started so far, those ahead left out."""
        self._cold = False
        self._enough = warm_steps
        """Steps after which its first process was warm."""
        self._ends = 0
        self.step_ns = 0.0
        self.ready_seconds = 0.0
        """Seconds of its first start in all, warm-up included."""
        self.warm_seconds = 0.0
        """From the start of the process to its first warm step; of the first start."""
        self.program_steps: int | None = None
        self._peak = 0
        self._made = 0
        self._warm: tuple[int, int] | None = None  # of the process that runs, after its first block
        self._recompiled = 0
        self._graphs: tuple[int, int] | None = None

    @property
    def in_turns(self) -> bool:
        """Others stand still while it warms up."""
        return self._turn is not AT_ONCE

    def start(self) -> None:
        """Up to its first step, where it stands still. Raises ArmError."""
        if self._arm is not None:
            return
        began = time.monotonic()
        self._made, self._cold, self.processes = 1, True, self.processes + 1
        while self._ahead:
            arm = self._ahead.pop(0)
            if arm.alive():
                self._arm = arm
                return
            arm.end()  # killed where it stood, for want of memory say
        self._arm = self._make(self._folder / str(next(self._numbers)))
        self._at_first_step(self._arm)
        self.ready_seconds = self.ready_seconds or time.monotonic() - began

    def start_ahead(self) -> None:
        """One more process, which stands at its first step until a later start takes it. What goes wrong in it is not
        told: that start makes another."""
        arm = self._make(self._folder / str(next(self._numbers)))
        self._ahead.append(arm)  # who ends them all does not wait until it is up
        try:
            self._at_first_step(arm)
        except ArmError:
            arm.end()
            with suppress(ValueError):
                self._ahead.remove(arm)

    @property
    def ahead(self) -> int:
        """Processes that later starts will take."""
        return len(self._ahead)

    def _at_first_step(self, arm: Runner) -> None:
        if (account := getattr(arm, "account", None)) is not None:
            self.accounts.append(account)
        arm.start()
        early = [name for name in self._remedies if name not in self._late]
        require_hold(early, arm.applied, arm.declined, "in its first step")

    def warm(self) -> None:
        """From its first step until it is warm. Raises ArmError."""
        if self._arm is None or not self._cold:
            return
        first = not self.step_ns
        with self._turn:
            began = time.monotonic()
            try:
                walls = self._warm_up(self._arm)
            except ArmError as error:
                if error.over:
                    raise ArmError(TOO_SHORT) from None
                raise
        require_hold(self._remedies, self._arm.applied, self._arm.declined, "in this program")
        self._cold = False
        if first:
            self.step_ns = figures.median(walls[warmup(walls) :] or walls)
            self.warm_seconds = self._arm.start_seconds + sum(walls[: warmup(walls)]) / 1e9
            self.ready_seconds += time.monotonic() - began
            self._enough = self._enough or max(LEAST_WARM, warmup(walls) + 1)

    def _warm_up(self, arm: Runner) -> list[int]:
        """Steps until the last ones agree with each other; some programs never do, and are measured all the same."""
        if self._enough:  # what the program does in its first steps it does in each process
            self._made += self._enough
            return list(arm.run(self._enough).walls)
        walls: list[int] = []
        while len(walls) < MOST_WARM_STEPS and (len(walls) < LEAST_WARM or sum(walls) < WARM_S * 1e9):
            steps = WARM_STEPS if walls and max(walls) * WARM_STEPS < WARM_S * 1e9 else LEAST_WARM // 2
            try:
                walls += arm.run(steps).walls
            except ArmError as error:
                if not error.over or len(walls) < 2 * LEAST_WARM:
                    raise
                return walls + self._after_all_of_it()
            self._made += steps
            if len(walls) < WARM_STEPS:
                continue
            last = sorted(walls[-WARM_STEPS // 2 :]), sorted(walls[-WARM_STEPS : -WARM_STEPS // 2])
            first, second = (figures.median(half) for half in last)
            if abs(first - second) <= WARM_BAND * min(first, second) and warmup(walls) < len(walls) - WARM_STEPS // 2:
                break
        return walls

    def _after_all_of_it(self) -> list[int]:
        """The program is over, and its steps never agreed with each other (loader workers that hand in every other
        batch at once, say): so its next process is as warm as it gets after the least."""
        self.program_steps = self._made
        self.end()
        self._enough = LEAST_WARM
        self.start()
        assert self._arm is not None
        return self._warm_up(self._arm)

    def catch_up(self, steps: int) -> None:
        """Make so many steps that nobody measures. Raises ArmError, but not where the program comes to its end: its
        next block starts it again."""
        if self._arm is None or not self.step_ns or steps * self.step_ns > LEVEL_S * 1e9:
            return
        try:
            self._arm.run(steps)
        except ArmError as error:
            if not error.over:
                raise
            self.program_steps = self._made
            self.end()
            return
        self._made += steps

    @property
    def made(self) -> int:
        """Steps that its process has made."""
        return self._made if self._arm is not None else 0

    def block(self, steps: int, anew: bool = True) -> Block:
        """One block; a program that ends in it starts again and makes it `anew`. Raises ArmError."""
        while True:
            self.start()
            self.warm()
            assert self._arm is not None
            try:
                block = self._arm.run(steps, self.step_ns * steps)
            except ArmError as error:
                if not error.over:
                    raise
                self.program_steps = self._made
                self.end()
                self._ends += 1
                if not anew:
                    raise
                if self._ends > MOST_RESTARTS:
                    raise ArmError(f"the program is too short: it ended {self._ends} times before enough blocks were "
                                   "measured") from None  # fmt: skip
                continue
            self._made += len(block.walls)
            self._graphs = block.graphs
            self._warm = self._warm or block.graphs
            if self._graphs is not None and self._warm is not None:
                self._recompiled = max(self._recompiled, self._graphs[0] - self._warm[0])
            return block

    @property
    def compiled(self) -> Compiled | None:
        """Graphs and breaks of torch.compile; None where it was not used. Recompiled: the most graphs that any one
        process made after its first block."""
        return Compiled(*self._graphs, recompiled=self._recompiled) if self._graphs is not None else None

    @property
    def peak_bytes(self) -> int:
        """Most that its processes held whenever it was stopped."""
        return max(self._peak, self._arm.peak_bytes if self._arm is not None else 0)

    def resident(self) -> int:
        """Bytes that its processes hold."""
        return self._arm.resident() if self._arm is not None else 0

    def held(self) -> int:
        """The same, what its processes share counted once."""
        return self._arm.held() if self._arm is not None else 0

    def wanting(self) -> int:
        """Threads of its processes that run or want a core."""
        return arm.wanting() if (arm := self._arm) is not None else 0

    def pause(self) -> None:
        """Its processes stand still, if there are any."""
        if (arm := self._arm) is not None:
            arm.pause()

    def resume(self) -> None:
        """They go on."""
        if (arm := self._arm) is not None:
            arm.resume()

    def all_accounts(self) -> list[Account]:
        """Return those of all its processes and of the other ranks of their jobs."""
        alive = [self._arm] if self._arm is not None else []
        return [*self.accounts, *self._of_ranks, *(each for arm in alive for each in rank_accounts(arm))]

    def end(self) -> None:
        """End its arm, if it runs."""
        if self._arm is not None:
            self._arm.end()
            self._of_ranks += rank_accounts(self._arm)
            self._peak, self._arm, self._warm = self.peak_bytes, None, None

    def end_ahead(self) -> None:
        """End all that were started ahead."""
        while self._ahead:
            self._ahead.pop().end()

    def close(self) -> None:
        """End its arm and all that were started ahead."""
        self.end()
        self.end_ahead()


def rank_accounts(arm: Runner) -> list[Account]:
    """Return the accounts of an arm's other ranks; none of a stand-in that keeps none."""
    found: Callable[[], list[Account]] = getattr(arm, "rank_accounts", list)
    return found()


def level(sides: Sequence[Side]) -> None:
    """Bring those that are alive to the same step of their program: where steps grow (a metric over all that was seen
    so far) one that warmed up for ten steps more is a tenth slower, whatever it is treated with. Raises ArmError."""
    most = max((side.made for side in sides), default=0)
    for side in sides:
        if behind := (most - side.made if side.made else 0):
            side.catch_up(behind)


def end(sides: Sequence[Side], how: Callable[[Side], None] = Side.end) -> None:
    """End all at once: an interpreter with torch in it takes seconds to go."""
    with ThreadPoolExecutor(max(1, len(sides))) as pool:
        for ended in [pool.submit(how, side) for side in sides]:
            ended.result()


def clear(folder: Path) -> None:
    """Remove the folders of arms that are over."""
    shutil.rmtree(folder, ignore_errors=True)
