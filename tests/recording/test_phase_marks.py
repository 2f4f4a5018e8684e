"""What a step goes to, by the marks of its hooks: parts that add up to it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.phases import BACKWARD, FORWARD, KEPT, NAMES, OPTIMIZER, OTHER, WAIT, PhaseMarks
from gobrrr.recording.model.steps import Step, find_loops
from tests.support.event_streams import MS, Program


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def fed(events: np.ndarray) -> PhaseMarks:
    phases = PhaseMarks()
    phases.feed(events)
    return phases


def test_a_usual_step_is_split_at_its_marks(program: Program) -> None:
    for _ in range(10):
        program.wait(0, 2)
        program.work(0.5)
        program.forward(3)
        program.recorder.note(event_kinds.BACKWARD, -1)
        program.work(4)
        program.update(1)
    (loop,) = find_loops(program.events)
    split, num = fed(program.events).split(loop.steps)
    told = {WAIT: 2 * MS, FORWARD: 3 * MS, BACKWARD: 4 * MS, OPTIMIZER: MS, OTHER: MS // 2}
    assert {name: ns / num for name, ns in split.items() if ns is not None} == told
    assert fed(program.events).batches(loop.steps) == 1


def test_what_was_never_marked_is_not_known_rather_than_nothing(program: Program) -> None:
    program.train(10)
    (loop,) = find_loops(program.events)
    split, num = fed(program.events).split(loop.steps)
    assert split[BACKWARD] is None, "no pass was noted"
    assert split[FORWARD] == num * 7 * MS
    assert PhaseMarks().split(loop.steps) == (dict.fromkeys(NAMES), 0)
    assert PhaseMarks().batches(loop.steps) is None


KINDS = [
    event_kinds.DATA_BEGIN,
    event_kinds.DATA_END,
    event_kinds.FORWARD,
    event_kinds.BACKWARD,
    event_kinds.UPDATE_BEGIN,
    event_kinds.UPDATE_END,
]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(KINDS)), min_size=1, max_size=60),
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_parts_add_up_to_the_steps_and_are_what_a_plain_count_says(
    gaps: list[tuple[int, int]], walls: list[int]
) -> None:
    times = np.cumsum([gap for gap, _ in gaps]) + 1
    events = np.array([(t, kind, 0, 0) for t, (_, kind) in zip(times, gaps, strict=True)], np.int64)
    edges = np.cumsum([int(times[0]), *walls]).tolist()
    steps = [Step(a, b, 0) for a, b in pairwise(edges)]
    split, num = fed(events).split(steps)
    assert num == len(steps) and sum(ns or 0 for ns in split.values()) == sum(walls)
    counted = dict.fromkeys(NAMES, 0)
    begins = {1: WAIT, 2: OTHER, 3: OPTIMIZER, 4: OTHER, 5: FORWARD, 13: BACKWARD}
    for moment in range(edges[0], edges[-1]):
        last = [kind for t, kind, *_ in events.tolist() if t <= moment][-1]
        counted[begins[last]] += 1
    assert {name: ns or 0 for name, ns in split.items()} == counted


def test_what_was_begun_before_the_first_step_goes_on_in_it() -> None:
    marked = fed(
        np.array([(5, event_kinds.UPDATE_END, 0, 0), (10, event_kinds.FORWARD, 0, 0), (30, event_kinds.BACKWARD, 0, 0)])
    )
    split, num = marked.split([Step(20, 40, 0)])
    assert (num, split[BACKWARD]) == (1, 10)
    assert (split[FORWARD], split[OTHER], split[OPTIMIZER]) == (10, 0, None), "and they add up"


def test_a_mark_at_the_very_end_is_one_of_these_steps() -> None:
    marked = fed(np.array([(10, event_kinds.FORWARD, 0, 0), (30, event_kinds.BACKWARD, 0, 0)]))
    split, _ = marked.split([Step(10, 30, 0)])
    assert (split[FORWARD], split[BACKWARD]) == (20, 0)


def test_only_the_marks_of_late_are_kept() -> None:
    phases = PhaseMarks()
    for first in range(0, 20 * KEPT, 1000):
        phases.feed(np.array([(first + n, event_kinds.FORWARD, 0, 0) for n in range(1000)], np.int64))
    assert KEPT <= phases._num < KEPT + 1000
    early, late = Step(5, 10, 0), Step(20 * KEPT - 500, 20 * KEPT - 400, 0)
    assert phases.split([early, late])[1] == 1
