"""The arms of a race that are alive at once: started beside each other, run one at a time.

Those that come up beside each other get the cores one after the other where they would only take them away: threads of
OpenMP that wait for one without a core spin on theirs. (The first step of a small LSTM over 200 points of time, 1 s
alone, had not ended after 186 s beside four others like it: four cores, four threads each.)
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol

import psutil

from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.arm.side import Side, clear, end, level
from gobrrr.trial.race.lockstep import ROOM
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Stack

LOOK_S = 5.0
"""Between looks, and of one arm's turn: imports take as long, one thread each, and go on beside each other."""
CROWD = 1.5
"""Threads that want a core, per core, from which arms take turns: two arms that compute, or more than six that import
on four cores."""


class Coming(Protocol):
    """An arm that comes up."""

    def wanting(self) -> int: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def wait_for(
    coming: Mapping[Coming, Future[None]], until: float, cores: int, over: threading.Event, look_s: float = LOOK_S
) -> None:
    """Until all are up (their futures done, and they stand still), or the time (of time.monotonic) is over, or `over`
    is set; then those that are not go on."""
    crowded = False
    while not over.is_set() and (late := _late(coming)) and (left := until - time.monotonic()) > 0:
        if len(late) > 1 and sum(each.wanting() for each in late) > CROWD * cores:
            crowded = True
            for each in late:
                _alone(each, coming, until, look_s)
        else:
            wait([coming[each] for each in late], min(look_s, left))
    if crowded:  # one may have been told to go on in the moment that it came up
        for each, future in coming.items():
            if future.done():
                each.pause()


def _late(coming: Mapping[Coming, Future[None]]) -> list[Coming]:
    return [each for each, future in coming.items() if not future.done()]


def _alone(each: Coming, coming: Mapping[Coming, Future[None]], until: float, turn_s: float) -> None:
    others = [other for other in _late(coming) if other is not each]
    for other in others:
        other.pause()
    try:
        wait([coming[each]], max(0.0, min(turn_s, until - time.monotonic())))
    finally:
        for other in others:
            if not coming[other].done():  # who came up meanwhile stands still by itself
                other.resume()


MOST = 6
"""Arms beside the reference, and no more than cores to start them: who waits for slower starts is not measured."""

LATE = "not ready within"
NEARLY = 0.75
"""Share of the steps of a program that has ended: an arm that has made so many is about to end too."""
KILL_S = 0.5
"""Seconds until an arm that is to be killed is killed again: it may just have been started."""


class Field:
    """Starts arms, lets one of them run, ends them. `make`: an arm's Side from its folder and stack."""

    def __init__(
        self, make: Callable[[Path, Stack], Side], folder: Path, cores: int, usual_bytes: int = 0,
        free_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().available), copies: int = 0,
    ) -> None:  # fmt: skip
        """`usual_bytes`: that an arm is thought to hold before any is alive; 0 where that is not known. `copies`: arms
        that a device holds at once; 0 without one."""
        self._usual, self._cores, self._copies = usual_bytes, cores, copies
        self._make, self._folder, self._free, self._most = make, folder, free_bytes, min(MOST, max(2, cores))
        self._sides: dict[Stack, Side] = {}
        self._num = 0
        # An arm dies with the thread that started it (system.processes): the threads live as long as the field.
        self._pool = ThreadPoolExecutor(max(1, cores))

    def __len__(self) -> int:
        return len(self._sides)

    def __contains__(self, stack: Stack) -> bool:
        return stack in self._sides

    def side(self, stack: Stack) -> Side:
        """The side of a stack that was started."""
        return self._sides[stack]

    def places(self) -> int:
        """Arms that there is memory for beside those that are alive: at least one of the machine's, which can be
        overcommitted, none of a full device's."""
        largest = max((side.resident() for side in self._sides.values()), default=self._usual)
        fitting = int(self._free() / (ROOM * largest)) if largest else 1  # of what nobody knows one by one
        fitting = max(1, min(self._most, fitting if self._sides or not largest else fitting - 1))  # of the reference
        return min(fitting, self.copies_left(0 if self._sides else 1))

    def copies_left(self, more: int = 0) -> int:
        """Arms that a device has room for beside those that are alive and so many more; without one no limit."""
        return max(0, self._copies - len(self._sides) - more) if self._copies else sys.maxsize

    def start(
        self, stacks: Iterable[Stack], seconds: float, kill: Callable[[Stack], None],
        beside: Callable[[], object] | None = None,
    ) -> dict[Stack, str]:  # fmt: skip
        """Start and warm those that are not there yet, as many at a time as there are cores; the reasons of those that
        did not come up (`is_late` tells which were merely slow). What is not ready by the end of `seconds` is killed.
        `beside`: done while they start, when nothing is timed; whoever warms up waits for it."""
        new = [stack for stack in dict.fromkeys(stacks) if stack not in self._sides]
        for stack in new:
            self._num += 1
            self._sides[stack] = self._make(self._folder / f"arm{self._num}", stack)
        began = time.monotonic()
        failed: dict[Stack, str] = {}
        for bring, most in ((Side.start, POLICY.first_step * seconds), (Side.warm, POLICY.warmed_up * seconds)):
            new = sorted(new, key=lambda stack: self._sides[stack].ready_seconds)  # who was slow to come warms up last
            coming: dict[Stack, Future[None]] = {}
            for stack in new:
                before = next(reversed(coming.values()), None) if bring is Side.warm else None
                coming[stack] = self._pool.submit(_bring, bring, self._sides[stack], before)
            if bring is Side.start:  # in the warm-up one has the turn, and the others stand still
                self._in_turns({self._sides[s]: future for s, future in coming.items()}, began + most, beside)
            failed |= self._late_or_broken(coming, began + most, f"{LATE} {most:.0f} s", kill)
            new = [stack for stack in new if stack not in failed]
        with contextlib.suppress(ArmError):  # who dies of it says so in its first block
            level([*self._sides.values()])
        return failed

    def _in_turns(
        self, coming: Mapping[Side, Future[None]], until: float, beside: Callable[[], object] | None = None
    ) -> None:
        over = threading.Event()
        waits = threading.Thread(target=wait_for, args=(coming, until, self._cores, over), daemon=True)
        waits.start()
        try:
            if beside is not None:
                beside()
            waits.join()
        finally:  # Ctrl-C too: nobody is stopped any more
            over.set()

    def _late_or_broken(
        self, coming: dict[Stack, Future[None]], until: float, late_since: str, kill: Callable[[Stack], None]
    ) -> dict[Stack, str]:
        """Wait for them; return those that did not come up, and why."""
        late = wait(coming.values(), max(0.0, until - time.monotonic())).not_done
        failed = {}
        for stack, future in coming.items():
            if future in late and not future.cancel():
                while not future.done():  # all of them: one may wait for a turn that another holds
                    for each in coming:
                        if coming[each] in late:
                            kill(each)
                    wait([future], KILL_S)
            error = None if future in late else future.exception()
            if error is not None and not isinstance(error, ArmError):
                raise error
            if future in late or error is not None:
                failed[stack] = error.reason if error is not None else late_since
                self.end([stack])
        return failed

    def block(self, stack: Stack, steps: int) -> Block:
        """A block of one of them, all others standing still. Where the program comes to its end in it, so do others
        that have made about as many steps: they are started anew with it, beside each other. Raises ArmError."""
        side = self._sides[stack]
        try:
            return side.block(steps, anew=False)
        except ArmError as error:
            if not error.over:
                raise
        enough = NEARLY * (side.program_steps or 0)
        due = [side, *(each for each in self._sides.values() if each.made > enough)]
        end(due)
        for bring in (Side.start, Side.warm):
            coming = {each: self._pool.submit(bring, each) for each in due}
            if bring is Side.start:
                self._in_turns(coming, math.inf)
            wait(coming.values())
            due = [each for each, future in coming.items() if future.exception() is None]
            end([each for each in coming if each not in due])  # it starts by itself in its turn, and says what is wrong
        return side.block(steps)

    def end(self, stacks: Sequence[Stack] | None = None) -> None:
        """End these, or all."""
        gone = [stack for stack in (list(self._sides) if stacks is None else stacks) if stack in self._sides]
        end([self._sides.pop(stack) for stack in gone])

    def close(self) -> None:
        """End all, for good; who waits to be started never is."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.end()
        self._pool.shutdown()
        clear(self._folder)


def _bring(bring: Callable[[Side], None], side: Side, before: Future[None] | None) -> None:
    """Where one has the turn, after the one before: a lock goes to whom the system wakes (Python 3.13: to the last)."""
    if before is not None and side.in_turns:
        wait([before])
    bring(side)


def is_late(reason: str) -> bool:
    """Whether an arm that did not come up might have, in more time."""
    return reason.startswith(LATE)
