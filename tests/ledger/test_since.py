"""What became of the steps until a look that was asked for, on a program with a clock of its own; and its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gobrrr.ledger.model.since import Since
from gobrrr.ledger.ops.op_times import OpTime
from gobrrr.ledger.steps.since import GREW_BYTES, since
from gobrrr.ledger.steps.step_stats import plain_steps, step_stats
from gobrrr.machine.gauges.readings import GaugedDevice, Head, Reading, Sample
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.facts import HeldGraph
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.run_folder.gauges_file import Gauges
from gobrrr.recording.run_folder.run import Recording, Start, Window
from gobrrr.report.told.blocks import plainly
from gobrrr.report.told.report import since as told
from tests.support.event_streams import MS, Program

GIB = 1 << 30


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def recording(program: Program, *windows: Window, **fields: Any) -> Recording:
    events = program.events
    return Recording(
        Path(), Start(), events, tuple(find_loops(events)), windows, None, (), (), {}, None, 0, (), **fields
    )


def aside(program: Program, begins: int) -> None:
    """Facts are noted for 100 ms, which are no step's."""
    program.now += 100 * MS
    program.recorder.note(ev.ASIDE, 0, begins)


def of(found: Recording, *held: HeldGraph) -> Since | None:
    return since(found, plain_steps(found), held)


def middle(program: Program, now_ms: float, early: int = 100, late: int = 60) -> Recording:
    """Steps of 10 ms, then of `now_ms`, which a look was asked for."""
    program.train(20)
    aside(program, 0)
    program.train(early)
    program.train(early, forward=now_ms - 7)
    aside(program, 1)
    program.train(late, forward=now_ms - 7)
    return recording(program)


def test_steps_then_and_now(program: Program) -> None:
    found = middle(program, 15)
    change = of(found)
    assert change is not None and change.changed and not change.looked
    assert (change.then_ns, change.now_ns) == (10 * MS, 15 * MS)
    assert (change.low, change.change, change.high) == pytest.approx((0.5,) * 3)
    assert change.step == 21, "the first after facts were noted is no more than warm-up"
    stats = step_stats(found)
    assert (stats.plain_wall_ns, stats.drift) == (15 * MS, 0.0), "the ledger is of the steps that were looked at"
    assert [plainly(line) for line in told(change) if line] == [
        "step 21: 10.0 to 15.0 ms a step (+50 %, 95 %: +50 to +50 %)"
    ]


def test_steps_that_nobody_watched_are_not_held_against_watched_ones(program: Program) -> None:
    program.train(20)
    aside(program, 0)
    for _ in range(4):
        program.train(30)
        program.recorder.rests((1, 0))
        program.train(200, forward=1)
        program.recorder.rested((1, 0), 200, [])
    aside(program, 1)
    program.train(60)
    change = of(recording(program))
    assert change is not None and (change.then_ns, change.now_ns) == (10 * MS, 10 * MS)


def test_without_a_look_nothing_is_said_and_all_steps_count(program: Program) -> None:
    program.train(100)
    aside(program, 0)
    program.train(100, forward=8)
    found = recording(program)
    assert of(found) is None and step_stats(found).plain_count > 190


@pytest.mark.parametrize("now", [10, 10.9, 9.2])
def test_steps_that_hardly_differ_are_as_long_as_then(now: float, program: Program) -> None:
    change = of(middle(program, now))
    assert change is not None and not change.changed and not change.ops
    assert "as long as then" in plainly(next(iter(told(change))))


def test_a_change_within_what_steps_differ_by_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    said = 0
    for _ in range(100):
        program = Program(monkeypatch)
        for part, mark in ((20, 0), (60, 1), (60, None)):
            for slow in rng.exponential(8, part // 5):
                program.train(5, forward=3 + slow)  # slow together, as on a machine that others use
            if mark is not None:
                aside(program, mark)
        change = of(recording(program))
        assert change is not None
        said += change.changed
    assert said <= 5


@pytest.mark.parametrize(("early", "late"), [(4, 60), (60, 5)])
def test_of_too_few_steps_nothing_is_said(early: int, late: int, program: Program) -> None:
    program.train(early)
    aside(program, 1)
    program.train(late)
    assert of(recording(program)) is None


@pytest.mark.parametrize(("grows", "told_of"), [(3 * GIB // 400, True), (0, False), (GREW_BYTES // 400, False)])
def test_memory_is_that_of_before_the_looks_own_windows(grows: int, told_of: bool, program: Program) -> None:
    program.rss_per_step = grows
    middle(program, 10, early=200)
    program.recorder.note(ev.WINDOW_BEGIN, 0, ev.PROFILE)
    program.rss += 8 * GIB
    program.train(40)
    change = of(recording(program))
    assert change is not None and (change.memory is not None) is told_of
    assert change.memory is None or change.memory == pytest.approx(400 * grows, rel=0.05)
    assert ("memory +" in plainly(next(iter(told(change))))) is told_of


def test_what_grows_is_named(program: Program) -> None:
    kept, other = HeldGraph("losses", length=4_980, growth_per_step=1.0), HeldGraph("buffer", length=9)
    change = of(middle(program, 10), other, kept)
    assert change is not None and change.kept == (("losses", 4_980),)
    assert "losses holds 4980 tensors now" in [plainly(line) for line in told(change)]


@pytest.mark.parametrize(("then", "now", "differ"), [(1_980, 1_410, True), (1_980, 1_950, False)])
def test_a_clock_that_fell_is_told(then: int, now: int, differ: bool, program: Program) -> None:
    found = middle(program, 12, early=400, late=200)
    times = range(int(found.events[0, 0]), int(found.events[-1, 0]), 100 * MS)
    samples = tuple(
        Sample(t, (Reading(busy=0.9, used=GIB, ours=GIB, clock_mhz=now if t > found.look else then),)) for t in times
    )
    change = of(replace(found, gauges=Gauges(Head((GaugedDevice("H100"),)), samples)))
    assert change is not None
    assert change.clocks == ((("H100", float(then), float(now)),) if differ else ())


def two_looks(program: Program) -> tuple[Window, Window]:
    """Steps of 10 ms and a look, then of 20 ms and another."""
    program.train(20)
    windows = []
    for ms in (10, 20):
        aside(program, 1)
        program.train(60, forward=ms - 7)
        begun = program.recorder.note(ev.WINDOW_BEGIN, 0, ev.PROFILE)
        program.train(3, forward=ms - 7)
        ended = program.recorder.note(ev.WINDOW_END, 0, ev.PROFILE)
        windows.append(Window("profile", (1, 0), 3, begun, ended, (0, 0)))
        program.train(60, forward=ms - 7)
    return windows[0], windows[1]


def test_a_second_look_is_held_against_the_first(program: Program) -> None:
    windows = two_looks(program)
    found = recording(program, *windows)
    change = of(found)
    assert change is not None and (change.then_ns, change.now_ns) == (10 * MS, 20 * MS)
    assert found.look > windows[0].ended
    unanswered = recording(program, windows[0])
    assert unanswered.look < windows[0].began, "of a look that was not completed nothing is told"


def test_ops_that_changed_most_between_two_looks_are_named(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = two_looks(program)
    traces: Any = {"then": {}, "now": {}}
    for name, then, now in (("aten::mm", 3, 3.1), ("aten::cat", 1, 9), ("aten::stack", 4, 2), ("aten::add", 0.1, 0.4)):
        for look, ms in (("then", then), ("now", now)):
            traces[look][name, "8x8"] = OpTime(1.0, ms * MS)
    monkeypatch.setattr("gobrrr.ledger.steps.since.op_times", lambda trace, spans: traces[trace])
    then, now = cast(Any, "then"), cast(Any, "now")
    found = replace(recording(program, first, last), earlier=(first, then), trace=now)
    change = since(found, [step for step in found.main.plain if step.start > found.look] if found.main else [])
    assert change is not None and change.looked and change.step == 80
    assert change.ops == (("aten::cat", 1 * MS, 9 * MS), ("aten::stack", 4 * MS, 2 * MS))
    said = [plainly(line) for line in told(change) if line]
    assert said[0].startswith("the look at step 80: 10.0 to 20.0 ms a step (+100 %")
    assert said[1] == "cat 1.00 to 9.00 ms, stack 4.00 to 2.00 ms"


def test_a_clock_that_stood_still_says_nothing(program: Program) -> None:
    program.train(60, 0, 0, 0, 0)
    aside(program, 1)
    program.train(60)
    assert of(recording(program)) is None


@pytest.mark.parametrize("then", [0.0, 1e-300])
def test_figures_of_a_strangers_report_are_shown_anyhow(then: float) -> None:
    shown = [plainly(line) for line in told(Since(step=2, then_ns=then, now_ns=1e300, low=-1e300, high=1e300))]
    assert shown[0].startswith("step 2: ")
