"""Arms of a race whose program comes to its end: who is started anew, when, and what is said of one that can't be."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from gobrrr.trial.arm import live_arms
from gobrrr.trial.arm import side as side_of
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.live_arms import Field, is_late
from gobrrr.trial.arm.side import Side
from gobrrr.trial.race.race_round import Stack
from tests.support.short_program import ShortArm

STACKS: list[Stack] = [(), ("x",), ("y",)]


class Made:
    """A field of arms of 40 steps; `broken` from its second start on."""

    def __init__(self, folder: Path, broken: Stack | None = None) -> None:
        self.starts: Counter[Stack] = Counter()
        self._broken = broken
        self.field = Field(self._side, folder, 4)

    def _side(self, folder: Path, stack: Stack) -> Side:
        def arm(_: Path) -> ShortArm:
            self.starts[stack] += 1
            again = stack == self._broken and self.starts[stack] > 1
            return ShortArm(broken="the disk is full" if again else "")

        return Side(arm, folder, ())


def test_arms_that_come_to_their_end_together_are_started_anew_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_of, "LEVEL_S", 0.0)  # who comes later would catch up
    made = Made(tmp_path)
    assert made.field.start(STACKS[:2], 60, lambda stack: None) == {}
    for _ in range(6):
        for stack in STACKS[:2]:
            assert made.field.block(stack, 4).ns == 200_000_000
    made.field.start(STACKS[2:], 60, lambda stack: None)
    assert made.starts == Counter(dict.fromkeys(STACKS, 1))
    while made.starts[()] == 1:
        made.field.block((), 4)
    assert made.starts == {(): 2, ("x",): 2, ("y",): 1}, "y has most of its steps before it"
    made.field.block(("x",), 4)
    assert made.starts[("x",)] == 2
    made.field.close()


def test_who_comes_later_catches_up_with_those_that_are_there(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.field.start(STACKS[:1], 60, lambda stack: None)
    before = made.field.side(()).made
    made.field.block((), 4)
    made.field.start(STACKS[1:2], 60, lambda stack: None)
    assert made.field.side(("x",)).made == made.field.side(()).made == before + 4
    made.field.close()


def test_one_that_can_not_be_started_anew_says_so_in_its_turn(tmp_path: Path) -> None:
    made = Made(tmp_path, broken=("x",))
    made.field.start(STACKS, 60, lambda stack: None)
    with pytest.raises(ArmError, match="the disk is full"):
        for _ in range(20):
            for stack in STACKS:
                made.field.block(stack, 4)
    assert made.field.block((), 4).ns and made.field.block(("y",), 4).ns
    made.field.close()


@pytest.mark.parametrize(("copies", "before", "alive"), [(0, 4, 1), (2, 1, 0), (3, 2, 0), (4, 3, 1), (9, 4, 1)])
def test_a_device_holds_so_many_arms_and_no_more(copies: int, before: int, alive: int, tmp_path: Path) -> None:
    """The machine's own memory may be overcommitted, a device's not: the third of two copies would fail for us."""
    made, free = Made(tmp_path), 1 << 40
    made.field = Field(made._side, tmp_path, 4, 1 << 30, lambda: free, copies)
    assert made.field.places() == before, "beside the reference, which is not alive yet"
    made.field.start(STACKS, 60, lambda stack: None)
    assert made.field.places() == alive
    made.field.close()


def test_who_was_slow_to_come_warms_up_last_and_holds_nobody_up(tmp_path: Path) -> None:
    """One turn at a time: who compiles anew in each step of its warm-up is late, the others are there."""
    turn, killed = threading.Lock(), threading.Event()

    def side(folder: Path, stack: Stack) -> Side:
        return Side(lambda _: ShortArm(killed=killed if stack == ("x",) else None), folder, (), turn=turn)

    field, began = Field(side, tmp_path, 4), time.monotonic()
    failed = field.start([("x",), (), ("y",)], 2.0, lambda stack: killed.set())
    assert list(failed) == [("x",)] and is_late(failed[("x",)]) and time.monotonic() - began < 2.0
    assert field.block((), 4).ns and field.block(("y",), 4).ns
    field.close()


def test_sides_that_take_each_others_cores_come_up_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside something that takes the main thread; each arm comes up once it has gone on while the others stood."""
    monkeypatch.setattr(live_arms.wait_for, "__defaults__", (0.05,))
    stopped: set[ShortArm] = set()
    over = time.monotonic() + 15
    arms: list[ShortArm] = []

    class Spins(ShortArm):
        def start(self, seconds: float = 0.0) -> None:
            while not (len(arms) == 3 and stopped >= set(arms) - {self}):
                assert time.monotonic() < over
                time.sleep(0.005)
            stopped.add(self)

        def wanting(self) -> int:
            return 4

        def pause(self) -> None:
            stopped.add(self)

        def resume(self) -> None:
            stopped.discard(self)

    def arm(_: Path) -> ShortArm:
        arms.append(Spins())
        return arms[-1]

    field = Field(lambda folder, stack: Side(arm, folder, ()), tmp_path, 4)
    failed = field.start(STACKS, 20.0, lambda stack: None, beside=lambda: time.sleep(0.5))
    assert failed == {} and stopped == set(arms), "they stand still"
    field.close()
