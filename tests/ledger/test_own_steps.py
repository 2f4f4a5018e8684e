"""A rank's own time by phase, of events that are made here: where a collective may lie, CPU time counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.ledger.job.own_steps import FIELDS, OwnSteps, own_steps, stood, threads_ns
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.run_folder.run import Recording, Start

MS = 1_000_000
MARKS = (ev.DATA_BEGIN, ev.DATA_END, ev.FORWARD, ev.BACKWARD, ev.UPDATE_BEGIN, ev.UPDATE_END, ev.COLLECTIVE)


class Rank:
    """Writes a journal's events: `goes_on(kind, ms, cpu)` is a mark behind ms of time, in which the thread worked."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.now, self.cpu = 1_000 * MS, 0

    def goes_on(self, kind: int, ms: float, cpu: float | None = None) -> None:
        self.now += round(ms * MS)
        self.cpu += round((ms if cpu is None else cpu) * MS)
        self.rows.append((self.now, kind, 0, 0))
        if kind in MARKS:
            self.rows.append((self.now, ev.THREAD, -1, self.cpu))

    def step(self, wait: float = 2, host: float = 1, forward: float = 3, backward: float = 10, own: float = 4) -> None:
        """Backward takes `backward` ms, of which `own` are work and the rest is waiting for other ranks."""
        self.goes_on(ev.DATA_BEGIN, 0)
        self.goes_on(ev.DATA_END, wait, 0)
        self.goes_on(ev.FORWARD, host)
        self.goes_on(ev.BACKWARD, forward)
        self.goes_on(ev.UPDATE_BEGIN, backward, own)
        self.goes_on(ev.UPDATE_END, 1)
        self.rows.append((self.now, ev.BOUNDARY, 0, ev.UPDATES))

    def recording(self, **start: object) -> Recording:
        events = np.array(self.rows, np.int64)
        loops = tuple(find_loops(events))
        return Recording(Path(), Start(**start), events, loops, (), None, (), (), {}, None, 0, ())  # type: ignore[arg-type]


def table(rank: Rank) -> dict[str, list[float]]:
    found = own_steps(rank.recording())
    assert isinstance(found, OwnSteps)
    return {name: [float(ns) / MS for ns in column] for name, column in zip(FIELDS, found.table().T, strict=True)}


def test_waiting_for_other_ranks_in_backward_is_no_own_work() -> None:
    rank = Rank()
    for _ in range(4):
        rank.step()
    found = table(rank)
    assert found["backward"] == [4.0] * 3 and found["wall"] == [17.0] * 3, "the first step has no begin"
    assert found["data wait"] == [2.0] * 3, "a loader may sleep for long: all of it is the rank's own"
    assert (found["forward"][0], found["optimizer"][0], found["other"][0]) == (3.0, 1.0, 1.0)


def test_of_a_look_that_was_asked_for_the_steps_since_it_count() -> None:
    rank = Rank()
    for _ in range(4):
        rank.step()
    asked = rank.now + 1
    rank.rows.append((asked, ev.ASIDE, 0, 1))
    for _ in range(3):
        rank.step(forward=30)
    found = own_steps(rank.recording())
    assert found is not None and found.first == 4
    assert (found.table()[:, FIELDS.index("wall")] / MS).tolist() == [44.0, 44.0]


def test_behind_a_collective_of_the_program_only_work_counts() -> None:
    rank = Rank()
    for _ in range(3):
        rank.step()
        rank.goes_on(ev.COLLECTIVE, 5, 0)  # before it the rank sleeps, which the others wait for
        rank.goes_on(ev.DATA_BEGIN, 8, 2)  # behind it the rank waits, or works for 2 ms
    assert table(rank)["other"] == [8.0] * 2


def test_steps_are_counted_alike_where_one_rank_evaluates_between_them() -> None:
    """What its evaluation takes belongs to the step that it delays."""
    rank = Rank()
    for number in range(6):
        if number == 3:
            rank.goes_on(ev.FORWARD, 0)
            rank.rows.append((rank.now, ev.BOUNDARY, 7, ev.FORWARDS))
            rank.goes_on(ev.FORWARD, 20)
            rank.rows.append((rank.now, ev.BOUNDARY, 7, ev.FORWARDS))
        rank.step()
    found = table(rank)
    assert len(found["wall"]) == 5 and found["forward"][2] == pytest.approx(23.0)


def test_steps_in_windows_and_rests_are_not_told() -> None:
    rank = Rank()
    for number in range(6):
        if number == 2:
            rank.rows.append((rank.now, ev.WINDOW_BEGIN, 0, ev.PROFILE))
        rank.step()
        if number == 2:
            rank.rows.append((rank.now, ev.WINDOW_END, 0, ev.PROFILE))
        if number == 4:
            rank.rows.append((rank.now, ev.REST_BEGIN, 0, ev.UPDATES))
    found = own_steps(rank.recording())
    assert found is not None
    assert np.isnan(found.table()).any(axis=1).tolist() == [False, True, False, False, True]


def test_collections_are_counted_in_the_step_that_they_end_in() -> None:
    rank = Rank()
    for _ in range(3):
        rank.step()
        rank.rows.append((rank.now - MS, ev.GC, 0, 3 * MS))  # written at the next boundary, out of order
    assert table(rank)["gc"] == [3.0, 3.0]


def test_nothing_is_said_without_cpu_times_or_where_a_device_works() -> None:
    rank = Rank()
    for _ in range(3):
        rank.step()
    assert own_steps(rank.recording(device="H100")) is None
    rank.rows = [row for row in rank.rows if row[1] != ev.THREAD]
    assert own_steps(rank.recording()) is None


def test_where_a_rank_stood_is_its_last_mark() -> None:
    rank = Rank()
    for _ in range(3):
        rank.step()
    rank.goes_on(ev.DATA_BEGIN, 1)
    assert stood(rank.recording()) == (3, "data wait")


def test_threads_beside_the_watched_one_are_counted_per_step() -> None:
    rank, spent = Rank(), 0
    for number in range(9):
        rank.step()
        spent = rank.cpu + number * 3 * MS  # 3 ms a step more than this thread
        rank.rows.append((rank.now, ev.CPU, 0, spent))
    assert threads_ns(rank.recording()) == pytest.approx(3 * MS, rel=0.15)
    rank.rows = [row for row in rank.rows if row[1] != ev.CPU]
    assert threads_ns(rank.recording()) == 0.0
