"""Referee and arm in every order that drawn programs, pipes and losses make: neither ever waits for the other."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.trial.arm.protocol import TELL_NS, ArmSide, Phase, RefereeSide

UPDATES, EVALUATION, OTHER = (1, 0), (2, 0), (1, 1)
MS = 1_000_000
Program = list[tuple[int, int]]


class Trial:
    """Both sides, two pipes and a program on a fake clock. Every method is one thing that can happen next."""

    def __init__(self, program: Program, loop: tuple[int, int] | None, steps: int) -> None:
        self.program, self.steps, self.now = deque(program), steps, 0
        self.arm, self.referee = ArmSide(loop), RefereeSide()
        self.ask: deque[dict[str, Any]] = deque()
        self.told: deque[dict[str, Any]] = deque()
        self.blocks: list[int] = []
        self.given = 0

    def tell(self, message: dict[str, Any] | None) -> None:
        if message is not None:
            self.told.append(dict(message))

    def runs(self) -> bool:
        """The program makes one step; it ends behind its last."""
        if self.arm.phase in (Phase.HELD, Phase.OVER):
            return False
        self.now += 10 * MS
        if self.program:
            self.tell(self.arm.boundary(self.program.popleft(), self.now))
        else:
            self.arm.over()
            self.tell({"kind": "ended"})
        return True

    def listens(self) -> bool:
        """The arm reads; only one that stands still does."""
        if self.arm.phase is not Phase.HELD or not self.ask:
            return False
        self.tell(self.arm.told(self.ask.popleft(), self.now))
        return True

    def hears(self) -> bool:
        """The referee reads."""
        if not self.referee.waits or not self.told:
            return False
        message = self.told.popleft()
        if self.referee.told(message) and message["kind"] == "block":
            self.blocks.append(message["number"])
        return True

    def grants(self) -> bool:
        if self.referee.phase is not Phase.HELD:
            return False
        self.given += 1
        self.ask.append(self.referee.grant(self.steps))
        return True

    def asks(self) -> bool:
        """It has waited for long; `arm.Arm` asks once in each wait, here as often as is drawn."""
        if not self.referee.waits:
            return False
        self.ask.append({"kind": "say"})
        return True

    def loses(self) -> bool:
        """The program has closed the pipe, or written into it."""
        if not self.told or self.told[-1]["kind"] == "ended":  # the end of a process is seen without a pipe
            return False
        self.told.pop()
        return True


MOVES = ("runs", "listens", "hears", "grants", "asks", "loses")
programs = st.lists(st.sampled_from([UPDATES, UPDATES, EVALUATION, OTHER]), max_size=60)
loops = st.sampled_from([UPDATES, EVALUATION, None])


@settings(max_examples=300, deadline=None)
@given(programs, loops, st.integers(1, 5), st.lists(st.sampled_from(MOVES), max_size=150))
def test_whatever_happens_in_whatever_order_neither_waits_for_the_other(
    program: Program, loop: tuple[int, int] | None, steps: int, moves: list[str]
) -> None:
    trial = Trial(program, loop, steps)
    for move in moves:
        getattr(trial, move)()
    for _ in range(2000):  # nothing is lost any more: it comes to the program's end
        if trial.referee.phase is Phase.OVER:
            break
        if not any(getattr(trial, move)() for move in ("hears", "listens", "grants", "runs")):
            assert trial.arm.phase is Phase.HELD and trial.referee.waits, "a lost message"
            trial.asks()
    assert trial.referee.phase is Phase.OVER
    assert trial.blocks == list(range(1, len(trial.blocks) + 1)), "each grant has one block, in order"
    assert trial.given - len(trial.blocks) in (0, 1), "the last may end with the program"


def drive(arm: ArmSide, program: Program, start: int = 0, each: int = 10 * MS) -> list[dict[str, Any]]:
    found = [arm.boundary(loop, start + (n + 1) * each) for n, loop in enumerate(program)]
    return [message for message in found if message is not None]


def granted(arm: ArmSide, steps: int, number: int = 1, now: int = 0) -> None:
    arm.told({"kind": "run", "steps": steps, "number": number}, now)


def test_an_evaluation_before_the_training_is_not_what_is_measured() -> None:
    arm = ArmSide(UPDATES)
    assert not drive(arm, [EVALUATION] * 50)
    assert [m["kind"] for m in drive(arm, [UPDATES])] == ["ready"] and arm.phase is Phase.HELD


def test_another_optimizer_that_steps_first_is_not_what_is_measured() -> None:
    arm = ArmSide(OTHER)
    assert not drive(arm, [UPDATES] * 3) and drive(arm, [OTHER])[0]["kind"] == "ready"


def test_without_a_name_the_first_loop_is_measured_to_the_end() -> None:
    arm = ArmSide(None)
    assert drive(arm, [EVALUATION])[0]["kind"] == "ready"
    granted(arm, 3)
    assert not drive(arm, [UPDATES] * 50), "it never changes"
    assert drive(arm, [EVALUATION] * 4)[0]["kind"] == "block"


def test_an_evaluation_within_a_block_is_no_part_of_it() -> None:
    arm = ArmSide(UPDATES)
    drive(arm, [UPDATES])
    granted(arm, 4, now=100 * MS)
    steps = [UPDATES, UPDATES, *[EVALUATION] * 20, UPDATES, UPDATES, UPDATES]
    assert drive(arm, steps, start=100 * MS)[0]["kind"] == "block"
    assert arm.walls == [10 * MS] * 4 and arm.aside_ns == 210 * MS


def test_a_loop_that_is_not_measured_gives_signs_of_life() -> None:
    arm, referee = ArmSide(UPDATES), RefereeSide()
    messages = drive(arm, [EVALUATION] * 4, each=TELL_NS)
    assert [m["steps"] for m in messages] == [1, 2, 3, 4]
    assert not any(referee.told(m) for m in messages) and referee.aside == (2, 4) and referee.waits


def test_what_is_late_or_out_of_turn_is_passed_over() -> None:
    referee = RefereeSide()
    assert not referee.told({"kind": "block", "number": 0})
    assert referee.told({"kind": "ready", "number": 0}) and not referee.waits
    referee.grant(5)
    for late in ("ready", "block"):
        assert not referee.told({"kind": late, "number": 0}) and referee.waits
    assert referee.told({"kind": "block", "number": 1})
    with pytest.raises(AssertionError):
        RefereeSide().grant(1)


def test_what_comes_once_is_part_of_no_step() -> None:
    """Put aside in a step that counts and in one around an evaluation: the rest of the grant adds up to it."""
    arm = ArmSide(UPDATES)
    arm.boundary(UPDATES, 0)
    arm.told({"kind": "run", "number": 1, "steps": 2}, 100)
    arm.put_aside(30)
    assert arm.boundary(UPDATES, 150) is None and arm.walls == [20]
    arm.boundary(EVALUATION, 160)
    arm.put_aside(5)
    assert arm.boundary(UPDATES, 190) is None, "it was interrupted"
    told = arm.boundary(UPDATES, 200)
    assert told == {"kind": "block", "number": 1} and arm.walls == [20, 10]
    assert 200 - 100 - arm.aside_ns == sum(arm.walls)
    arm.told({"kind": "run", "number": 2, "steps": 1}, 300)
    assert arm.aside_ns == 0, "of this grant alone"
