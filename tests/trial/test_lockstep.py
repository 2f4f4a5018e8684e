"""One side of a trial, its arm played by a fake: what it keeps when the process is started anew."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from gobrrr.guard.model.account import Account, Row
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.arm.side import LEAST_WARM, Side, level
from gobrrr.trial.race.lockstep import measure
from gobrrr.trial.race.referee import Program
from tests.support.short_program import ShortArm


class FakeArm:
    """Steps of one length; `graphs` so many after each block."""

    def __init__(self, graphs: Sequence[int]) -> None:
        self.applied: dict[str, str] = {}
        self.declined: dict[str, str] = {}
        self.start_seconds, self.peak_bytes = 1.0, 0
        self._graphs = iter(graphs)

    def start(self, seconds: float = 0.0) -> None:
        """At once."""

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        """Warming up counts no graphs."""
        return Block(steps * 1000, (1000,) * steps, (next(self._graphs), 0) if expected_ns is not None else None)

    def end(self) -> None:
        """At once."""

    def resident(self) -> int:
        """Nothing."""
        return 0


def recompiled(tmp_path: Path, *processes: Sequence[int]) -> int:
    arms = iter(FakeArm(graphs) for graphs in processes)
    side = Side(lambda _: next(arms), tmp_path, ())
    for graphs in processes:
        for _ in graphs:
            side.block(10)
        side.end()
    assert side.compiled is not None and side.compiled.graphs == processes[-1][-1]
    return side.compiled.recompiled


def test_graphs_made_anew_are_counted_within_a_process(tmp_path: Path) -> None:
    assert recompiled(tmp_path, (2, 2, 2), (3, 3)) == 0  # another process made one more before its first block ended
    assert recompiled(tmp_path, (2, 4), (2, 2)) == 2  # only the first one recompiled: not forgotten
    assert recompiled(tmp_path, (4, 4), (2, 3)) == 1


def test_arms_that_take_each_others_cores_warm_up_in_turn(tmp_path: Path) -> None:
    """Threads of OpenMP that wait for cores made the steps of three arms at once 60 times as long."""
    turn, at_once = threading.Semaphore(1), []
    warming = [0]

    class Warms(FakeArm):
        def run(self, steps: int, expected_ns: float | None = None) -> Block:
            warming[0] += 1
            at_once.append(warming[0])
            time.sleep(0.005)
            warming[0] -= 1
            return super().run(steps, expected_ns)

    sides = [Side(lambda _: Warms((1,)), tmp_path / str(n), (), turn=turn) for n in range(4)]
    for side in sides:
        side.start()
    threads = [threading.Thread(target=side.warm) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(at_once) >= 4 and set(at_once) == {1}
    assert all(side.step_ns for side in sides)


def test_a_later_process_warms_up_as_long_as_the_first_one_had_to(tmp_path: Path) -> None:
    asked: list[int] = []

    class Cold(FakeArm):
        """Its first six steps are slow in every process."""

        def run(self, steps: int, expected_ns: float | None = None) -> Block:
            asked.append(steps)
            first = self.done
            self.done += steps
            walls = tuple(9_000_000 if number < 6 else 1_000_000 for number in range(first, first + steps))
            return Block(sum(walls), walls)

        done = 0

    side = Side(lambda _: Cold((1,)), tmp_path, ())
    side.block(1)
    assert sum(asked) > 12 and side.step_ns == 1_000_000
    side.end()
    asked.clear()
    side.block(1)
    assert asked == [7, 1]


class Growing(FakeArm):
    """Each step is longer than the one before; so many are slow at first. `over`: steps after which it ends."""

    def __init__(self, slow: int, over: int = 10**6) -> None:
        super().__init__((1,) * 99)
        self.slow, self.over, self.done = slow, over, 1

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        if self.done + steps > self.over:
            raise ArmError("the program came to its end", over=True)
        walls = tuple(10**8 if n < self.slow else 10**7 + 10**5 * n for n in range(self.done, self.done + steps))
        self.done += steps
        return Block(sum(walls), walls)


def made_ready(tmp_path: Path, *slow: int, over: int = 10**6) -> tuple[list[Side], list[Growing]]:
    arms = [Growing(each, over) for each in slow]
    later = iter([*arms, *(Growing(each) for each in slow)])
    sides = [Side(lambda _: next(later), tmp_path / str(n), ()) for n in range(len(slow))]
    for side in sides:
        side.start()
        side.warm()
    return sides, arms


def test_arms_stand_at_the_same_step_before_they_are_measured(tmp_path: Path) -> None:
    """Of a program whose steps grow who warmed up for longer would be slower for that alone."""
    sides, arms = made_ready(tmp_path, 2, 9)
    assert arms[0].done < arms[1].done
    level(sides)
    assert arms[0].done == arms[1].done == sides[0].made == sides[1].made
    assert sides[0].block(3).walls == sides[1].block(3).walls


def test_who_is_too_far_behind_or_at_its_end_is_left_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides, arms = made_ready(tmp_path, 2, 9)
    before = arms[0].done
    monkeypatch.setattr("gobrrr.trial.arm.side.LEVEL_S", 1e-6)
    level(sides)
    assert arms[0].done == before
    monkeypatch.undo()
    sides, arms = made_ready(tmp_path, 2, 9)
    arms[0].over = arms[0].done
    level(sides)
    assert sides[0].made == 0 and sides[0].program_steps == arms[0].done
    assert len(sides[0].block(2).walls) == 2, "it is started again"


def test_measuring_begins_at_the_same_step(tmp_path: Path) -> None:
    made: list[Growing] = []

    def arm(slow: int) -> Growing:
        made.append(Growing(slow))
        return made[-1]

    sides = [Side(lambda _, slow=slow: arm(slow), tmp_path / str(slow), ()) for slow in (9, 2)]
    found = measure(*sides, seed=0, seconds=0.2)
    assert found.verdict != "faster" and made


class Told(FakeArm):
    """Keeps an account; fails where it makes half as many steps again as the first one made."""

    def __init__(self, ns: int, first: list[Told], fails: bool) -> None:
        super().__init__(())
        self.ns, self.first, self.fails, self.account, self.done = ns, first, fails, Account(), 0

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        self.done += steps
        self.account.rows.append(Row(self.done))
        if self.fails and self.first[0] is not self and self.done > 1.5 * self.first[0].done:
            raise ArmError("it ended with exit code 1")
        time.sleep(1e-9 * self.ns * steps)
        return Block(steps * self.ns, (self.ns,) * steps)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_faster_is_looked_at_behind_the_steps_that_were_timed(fails: bool, tmp_path: Path) -> None:
    made: list[list[Told]] = [[], []]

    def arm(side: int) -> Told:
        made[side].append(Told((2_000_000, 1_000_000)[side], made[side], fails and side == 1))
        return made[side][-1]

    sides = [Side(lambda _, n=n: arm(n), tmp_path / str(n), ()) for n in (0, 1)]
    found = measure(*sides, seed=0, seconds=12.0)
    assert found.verdict == ("failed" if fails else "faster")
    assert made[1][-1].done > 1.4 * made[1][0].done, "the last process goes on"
    assert not fails or "behind step" in found.reason


def test_a_steady_program_warms_up_for_a_few_steps_in_later_processes(tmp_path: Path) -> None:
    asked: list[int] = []

    class Steady(FakeArm):
        def run(self, steps: int, expected_ns: float | None = None) -> Block:
            asked.append(steps)
            return super().run(steps, expected_ns)

    side = Side(lambda _: Steady((1,)), tmp_path, ())
    side.block(1)
    side.end()
    asked.clear()
    side.block(1)
    assert asked == [LEAST_WARM, 1]


def test_the_steps_of_a_program_are_counted_in_each_of_its_processes(tmp_path: Path) -> None:
    side = Side(lambda _: ShortArm(), tmp_path, ())
    counted = set()
    for _ in range(100):
        side.block(1)
        counted.add(side.program_steps)
    assert counted == {None, 40} and side._ends >= 2


class Restless(ShortArm):
    """Every other step takes ten times as long; it keeps to no pace within WARM_STEPS."""

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        first = self._done
        super().run(steps, expected_ns)
        walls = tuple(10_000_000 if number % 2 else 100_000_000 for number in range(first, first + steps))
        return Block(sum(walls), walls)


def test_a_program_that_ends_before_its_steps_agree_is_warm_after_a_few(tmp_path: Path) -> None:
    starts: list[int] = []

    def made(_: Path) -> Restless:
        starts.append(1)
        return Restless(35)

    side = Side(made, tmp_path, ())
    assert side.block(2).ns == 110_000_000 and side.step_ns in (10_000_000, 55_000_000, 100_000_000)
    assert len(starts) == 2 and side.made == 1 + LEAST_WARM + 2 and side.program_steps == 33


def test_a_program_of_a_few_steps_is_too_short(tmp_path: Path) -> None:
    side = Side(lambda _: ShortArm(7), tmp_path, ())
    with pytest.raises(ArmError, match="too short") as told:
        side.block(1)
    assert not told.value.over


@pytest.mark.parametrize("num", [40, 30])
def test_a_round_ends_with_its_program(num: int, tmp_path: Path) -> None:
    """Another start of the same arm would wait for the other one, and be another process of the same round."""
    starts = [0, 0]

    def side(arm: int) -> Side:
        def made(_: Path) -> ShortArm:
            starts[arm] += 1
            return ShortArm(num, 50_000_000 // (1 + arm))

        return Side(made, tmp_path / str(arm), ())

    found = measure(side(0), side(1), seed=1, seconds=12.0)
    assert found.verdict == "faster" and found.speedup is not None and found.speedup.median == pytest.approx(2.0)
    rounds = Counter(found.samples.round)
    assert starts == [len(rounds)] * 2 == [3, 3]
    assert all(blocks >= 8 and blocks % 4 == 0 for blocks in rounds.values())


def test_a_program_too_short_for_a_round_is_started_within_it(tmp_path: Path) -> None:
    found = measure(*(Side(lambda _: ShortArm(18), tmp_path / str(arm), ()) for arm in range(2)), seed=1, seconds=12.0)
    assert found.verdict == "equivalent" and all(blocks >= 8 for blocks in Counter(found.samples.round).values())


@pytest.mark.parametrize("pairs", [1, 2, 3, 4])
def test_processes_of_later_rounds_start_beside_the_first_where_there_is_room(pairs: int, tmp_path: Path) -> None:
    """Of an H200 whose program needs 28 s to its first step three rounds took 162 s."""
    living, begun = set[ShortArm](), list[int]()

    class Watched(ShortArm):
        def start(self, seconds: float = 0.0) -> None:
            living.add(self)

        def run(self, steps: int, expected_ns: float | None = None) -> Block:
            begun.append(len(living))
            return super().run(steps, expected_ns)

        def end(self) -> None:
            living.discard(self)

    sides = [Side(lambda _, ns=ns: Watched(10**6, ns), tmp_path / str(ns), ()) for ns in (50_000_000, 25_000_000)]
    found = measure(sides[0], sides[1], seed=1, seconds=600, pairs=pairs)
    assert found.verdict == "faster" and set(found.samples.round) == {1, 2, 3}
    assert begun[0] == 2 * pairs and begun[-1] == 2 * max(1, pairs - 2) and not living


def test_where_those_that_stand_take_the_memory_of_two_they_are_ended_first(tmp_path: Path) -> None:
    living, most = set[ShortArm](), [0]

    class Large(ShortArm):
        def start(self, seconds: float = 0.0) -> None:
            living.add(self)
            most[0] = max(most[0], len(living))

        def end(self) -> None:
            living.discard(self)

        def resident(self) -> int:
            return 10

    sides = [Side(lambda _, ns=ns: Large(10**6, ns), tmp_path / str(ns), ()) for ns in (50_000_000, 25_000_000)]
    found = measure(sides[0], sides[1], seed=1, seconds=600, pairs=3, free_bytes=lambda: 40 - 10 * len(living))
    assert most == [6] and found.verdict == "faster" and not found.reason, "not one arm at a time"


def test_a_process_that_does_not_come_up_ahead_is_started_in_its_round(tmp_path: Path) -> None:
    made: list[ShortArm] = []

    def arm(_: Path) -> ShortArm:
        made.append(ShortArm(10**6, broken="no memory" if len(made) in (1, 2) else ""))
        return made[-1]

    side = Side(arm, tmp_path, ())
    side.start()
    side.start_ahead(), side.start_ahead()
    side.end()
    assert side.block(1).walls and len(made) == 4


def test_a_process_that_dies_while_it_stands_ahead_is_not_taken(tmp_path: Path) -> None:
    made: list[ShortArm] = []

    class Killed(ShortArm):
        ended = False

        def alive(self) -> bool:
            return self is not made[1]

        def run(self, steps: int, expected_ns: float | None = None) -> Block:
            if self is made[1]:
                raise ArmError("it died (SIGKILL)")
            return super().run(steps, expected_ns)

        def end(self) -> None:
            self.ended = True

    def arm(_: Path) -> ShortArm:
        made.append(Killed(10**6))
        return made[-1]

    side = Side(arm, tmp_path, ())
    side.start()
    side.start_ahead(), side.start_ahead()
    side.end()
    assert side.block(1).walls and len(made) == 3
    assert isinstance(made[1], Killed) and made[1].ended


def test_how_many_arms_compute_at_once_is_a_matter_of_their_threads() -> None:
    def abreast(threads: int, cores: int) -> int:
        return Program(("python",), Path(), threads=threads).abreast(cores)

    assert [abreast(threads, 4) for threads in (1, 2, 3, 4, 8, 0)] == [4, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(("threads", "cores", "abreast"), [(0, 4, 1), (1, 4, 4), (2, 4, 2), (3, 8, 2), (8, 4, 1)])
def test_programs_go_abreast_where_each_has_its_cores(threads: int, cores: int, abreast: int) -> None:
    assert Program((), Path(), threads=threads).abreast(cores) == abreast
    assert Program((), Path()).abreast(cores) == 1, "as many threads as cores"
