"""Waits for collectives that other threads carry: stretches without ops that end when the transfer does, no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.ledger.host.host_ops import HostOps, host_ops
from gobrrr.ledger.host.places import replay
from tests.support.timelines import MS, OFFSET, PID, Timeline

GLOO = "gloo:all_reduce"


def transfer(timeline: Timeline, begin: int, end: int, tid: int = PID + 1) -> None:
    """Of another thread."""
    timeline.trace.append({
        "ph": "X", "cat": "user_annotation", "name": GLOO, "pid": PID, "tid": tid, "args": {},
        "ts": f"@{begin + OFFSET}@", "dur": f"@{end - begin}@",
    })  # fmt: skip


def waits(timeline: Timeline, folder: Path) -> list[tuple[int, str]]:
    """(ns, phase) of each."""
    host = rows(timeline, folder)
    return [(int(host.own[row]), host.phase[row]) for row in range(len(host)) if host.name(row) == GLOO]


def rows(timeline: Timeline, folder: Path) -> HostOps:
    recording = timeline.recording(folder)
    window = recording.window("profile")
    assert window is not None and recording.trace is not None
    return host_ops(recording, window, recording.trace, replay(window.lines, window.offset))


def step(after: int, python: bool = False, tid: int = PID + 1) -> Timeline:
    """A backward pass whose bucket takes 9 ms from its launch on, 2 of them hidden; the thread goes on `after` ns
    later. `python`: 3 ms of the rest are a line of the program's."""
    timeline = Timeline()
    timeline.plain_steps(MS, MS, MS)
    with timeline.window(), timeline.frame("main"):
        timeline.line(2)
        with timeline.module("Net"):
            timeline.leaf("aten::addmm", MS)
        timeline.line(3)
        with timeline.backward():
            timeline.leaf("c10d::allreduce_", MS)
            begin = timeline.now
            timeline.leaf("aten::mm", 2 * MS)
            timeline.run(4 * MS)
            if python:
                timeline.line(4)
            timeline.run(3 * MS)
            transfer(timeline, begin, timeline.now, tid)
            timeline.run(after)
            timeline.leaf("aten::copy_", MS)
        timeline.line(5)
        with timeline.update():
            timeline.leaf("aten::_foreach_add_", MS)
    return timeline


@pytest.mark.parametrize("after", [0, MS])
def test_what_ends_with_the_transfer_is_a_wait(after: int, tmp_path: Path) -> None:
    assert waits(step(after), tmp_path) == [(7 * MS, "backward")]


def test_the_threads_own_transfer_is_an_op_already(tmp_path: Path) -> None:
    host = rows(step(0, tid=PID), tmp_path)
    assert [host.name(row) for row in range(len(host))].count(GLOO) == 1


def test_a_thread_that_goes_on_later_did_something_else(tmp_path: Path) -> None:
    assert waits(step(6 * MS), tmp_path) == []


@pytest.mark.parametrize(("pause", "waited"), [(20 * MS, 9 * MS), (MS // 10, 10 * MS + MS // 10)])
def test_what_lies_between_two_transfers_is_a_wait_only_where_they_follow_at_once(
    pause: int, waited: int, tmp_path: Path
) -> None:
    timeline = Timeline()
    timeline.plain_steps(MS, MS, MS)
    with timeline.window(), timeline.frame("main"):
        timeline.line(3)
        with timeline.backward():
            timeline.leaf("c10d::allreduce_", MS)
            begin = timeline.now
            timeline.leaf("aten::mm", MS)
            timeline.run(MS)
            transfer(timeline, begin, timeline.now)
            timeline.run(pause)  # no transfer is under way
            begin = timeline.now
            timeline.run(9 * MS)
            transfer(timeline, begin, timeline.now)
            timeline.leaf("aten::copy_", MS)
        timeline.line(5)
        with timeline.update():
            timeline.leaf("aten::_foreach_add_", MS)
    assert waits(timeline, tmp_path) == [(waited, "backward")]


def test_what_precedes_the_last_line_is_pythons(tmp_path: Path) -> None:
    assert waits(step(0, python=True), tmp_path) == [(3 * MS, "backward")]
