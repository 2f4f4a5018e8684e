"""Steps cut from journals of programs on a fake clock: which are plain, how long, how much of each waits for data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.capture.steps.loops import PATIENCE_DATA, PATIENCE_INFERENCE
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.event_kinds import BATCHES, EXPLICIT, FORWARDS, UPDATES
from gobrrr.recording.model.steps import Finder, LoopSteps, find_loops
from gobrrr.recording.model.warmup import doubted, settling, warmup
from tests.support.event_streams import EVALUATION, MS, Program


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def by_key(loops: list[LoopSteps]) -> dict[tuple[int, int], LoopSteps]:
    return {(loop.kind, loop.number): loop for loop in loops}


def test_a_training_loop_is_cut_from_update_to_update(program: Program) -> None:
    program.train(10)
    (loop,) = find_loops(program.events)
    assert (loop.kind, loop.number) == (UPDATES, 0)
    assert [step.wall for step in loop.steps] == [10 * MS] * 9, "nobody saw the first one begin"
    assert [step.wait for step in loop.steps] == [2 * MS] * 9
    assert all(one.end == other.start for one, other in pairwise(loop.steps))


def test_accumulation_makes_micro_steps_of_one_step(program: Program) -> None:
    for _ in range(10):
        for _ in range(4):
            program.wait(0, 1)
            program.forward(2)
            program.work(3)
        program.update(4)
    (loop,) = find_loops(program.events)
    assert [step.wall for step in loop.steps] == [28 * MS] * 9
    assert [step.wait for step in loop.steps] == [4 * MS] * 9


@pytest.mark.parametrize("ratio", [1, 5])
def test_a_gan_steps_with_its_generator(program: Program, ratio: int) -> None:
    for _ in range(20):
        for _ in range(ratio):
            program.wait(0, 1)
            program.forward(1, module=0)
            program.forward(1, module=1)
            program.update(1, optimizer=0)
        program.forward(2, module=1)
        program.update(1, optimizer=1)
    main, *others = find_loops(program.events)
    assert (main.kind, main.number) == (UPDATES, 1)
    assert {step.wall for step in main.steps} == {(4 * ratio + 3) * MS}
    assert len(main.steps) == 19
    assert sum(len(loop.steps) for loop in others) <= ratio, "before the generator was met"


def test_optimizers_that_one_line_steps_one_after_the_other_are_one_loop(program: Program) -> None:
    """Folds of a cross-validation, layers that train themselves: counted by hand, the first step has no beginning."""
    for fold in range(5):
        for _ in range(20):
            program.forward(3)
            program.update(1, optimizer=fold)
    loops = by_key(find_loops(program.events))
    assert {key: len(loop.steps) for key, loop in loops.items()} == {(1, 0): 5 * 20 - 1}
    assert {step.wall for step in loops[1, 0].steps} == {4 * MS}


def test_optimizers_of_another_line_are_a_loop_of_their_own(program: Program) -> None:
    for _ in range(20):
        program.update(4, optimizer=0)
    for _ in range(30):
        program.update(4, optimizer=1)
    assert {key: len(loop.steps) for key, loop in by_key(find_loops(program.events)).items()} == {
        (1, 0): 19,
        (1, 1): 29,
    }


@pytest.mark.parametrize("count", [2, 10])
def test_optimizers_that_one_line_steps_in_turn_end_a_step_together(program: Program, count: int) -> None:
    for _ in range(40):
        program.forward(3)
        for optimizer in range(count):
            program.update(1, optimizer=optimizer)
    main = find_loops(program.events)[0]
    assert 38 <= len(main.steps) <= 39 and {step.wall for step in main.steps[1:]} == {(3 + count) * MS}


def test_evaluation_between_epochs_is_another_loop_and_lengthens_no_step(program: Program) -> None:
    for _ in range(3):
        program.train(20)
        for _ in range(20):
            program.wait(1, 1)
            program.forward(4, flags=EVALUATION)
    loops = by_key(find_loops(program.events))
    training, evaluation = loops[UPDATES, 0], loops[FORWARDS, 0]
    assert {step.wall for step in training.steps} == {10 * MS}
    assert len(training.steps) == 3 * 19
    assert {step.wall for step in evaluation.steps} == {5 * MS}
    assert len(evaluation.steps) == 3 * (20 - PATIENCE_INFERENCE - 1)


def test_a_short_evaluation_is_one_long_step_and_not_a_loop(program: Program) -> None:
    for _ in range(3):
        program.train(20)
        for _ in range(PATIENCE_INFERENCE):
            program.forward(4, flags=EVALUATION)
    (loop,) = find_loops(program.events)
    assert sorted(step.wall for step in loop.steps)[-2:] == [(10 + 4 * PATIENCE_INFERENCE) * MS] * 2


def test_inference_is_cut_at_the_forward(program: Program) -> None:
    for _ in range(30):
        program.wait(0, 2)
        program.forward(5, flags=EVALUATION)
        program.work(3)
    (loop,) = find_loops(program.events)
    assert loop.kind == FORWARDS
    assert {(step.wall, step.wait) for step in loop.steps} == {(10 * MS, 2 * MS)}


def test_a_functional_loop_is_cut_at_its_batches(program: Program) -> None:
    for epoch in range(3):
        for _ in range(100):
            program.wait(epoch, 3)
            program.work(7)
        program.epoch_ends(epoch)
    (loop,) = find_loops(program.events)
    assert loop.kind == BATCHES
    walls = [step.wall for step in loop.steps]
    assert len(walls) >= 300 - PATIENCE_DATA - 1 - 2
    assert sorted(walls)[len(walls) // 2] == 10 * MS
    assert {step.wait for step in loop.steps if step.wall == 10 * MS} == {3 * MS}


def test_explicit_steps_win(program: Program) -> None:
    for _ in range(10):
        program.wait(0, 2)
        program.update(3)
        program.update(4, optimizer=1)
        program.work(1)
        program.recorder.explicit()
    loops = find_loops(program.events)
    assert loops[0].kind == EXPLICIT
    assert {(step.wall, step.wait) for step in loops[0].steps} == {(10 * MS, 2 * MS)}


def test_windows_cut_steps_and_the_steps_after_them_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Program(monkeypatch, windows={10: (event_kinds.PROFILE, 4), 20: (event_kinds.SAMPLE, 3)})
    watched.slower = 5.0
    watched.train(40)
    (loop,) = find_loops(watched.events, settle=3)
    kinds = [step.window for step in loop.steps]
    assert kinds == [0] * 9 + [event_kinds.PROFILE] * 4 + [0] * 6 + [event_kinds.SAMPLE] * 3 + [0] * 17
    assert [step.settling for step in loop.steps] == [
        *[False] * 13, *[True] * 3, *[False] * 3, *[False] * 3, *[True] * 3, *[False] * 14
    ]  # fmt: skip
    assert {step.wall for step in loop.plain} == {10 * MS}, "neither the profiler nor its start and stop are in"
    assert {step.wall for step in loop.steps if step.window == event_kinds.PROFILE} == {50 * MS}
    assert len(loop.plain) == 9 + 3 + 14


def test_a_foreign_loop_inside_a_window_is_no_step_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Program(monkeypatch, windows={18: (event_kinds.PROFILE, 5)})
    for _ in range(3):
        watched.train(20)
        for _ in range(10):
            watched.forward(4, flags=EVALUATION)
    training = by_key(find_loops(watched.events))[UPDATES, 0]
    profiled = [step for step in training.steps if step.window == event_kinds.PROFILE]
    assert {step.wall for step in profiled} == {10 * MS}
    assert len(profiled) == 4, "two before the evaluation, three after it, of which nobody saw the first begin"


def test_a_journal_that_ends_in_a_window_keeps_its_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Program(monkeypatch, windows={10: (event_kinds.PROFILE, 100)})
    watched.train(15)
    (loop,) = find_loops(watched.events)
    assert len(loop.plain) == 9
    assert len(loop.steps) == 9 + 5


def test_a_wait_that_lies_across_a_boundary_is_shared() -> None:
    events = np.array(
        [
            (10, event_kinds.BOUNDARY, 0, 1), (20, event_kinds.DATA_BEGIN, 0, 0), (30, event_kinds.BOUNDARY, 0, 1),
            (45, event_kinds.DATA_END, 0, 0), (50, event_kinds.BOUNDARY, 0, 1), (60, event_kinds.BOUNDARY, 0, 1),
        ]
    )  # fmt: skip
    (loop,) = find_loops(events)
    assert [step.wait for step in loop.steps] == [10, 15, 0]


@pytest.mark.parametrize(
    "events", [[], [(5, event_kinds.RSS, 0, 1)], [(5, event_kinds.BOUNDARY, 0, 1)], [(5, event_kinds.WINDOW_END, 0, 1)]]
)
def test_no_step_is_no_loop(events: list[tuple[int, ...]]) -> None:
    assert find_loops(np.array(events, np.int64).reshape(-1, 4)) == []


KINDS = st.sampled_from(
    [
        event_kinds.BOUNDARY,
        event_kinds.WINDOW_BEGIN,
        event_kinds.WINDOW_END,
        event_kinds.DATA_BEGIN,
        event_kinds.DATA_END,
    ]
)


@given(st.lists(st.tuples(st.integers(1, 100), KINDS, st.integers(0, 2), st.integers(1, 4)), max_size=60))
def test_whatever_comes_steps_are_disjoint_and_wait_no_longer_than_they_last(rows: list[tuple[int, ...]]) -> None:
    events = np.array(rows, np.int64).reshape(-1, 4)
    events[:, 0] = np.cumsum(events[:, 0])
    loops = find_loops(events)
    steps = sorted((step for loop in loops for step in loop.steps), key=lambda step: step.start)
    assert all(one.end <= other.start for one, other in pairwise(steps))
    assert all(0 <= step.wait <= step.wall for step in steps)
    assert [loop.total for loop in loops] == sorted((loop.total for loop in loops), reverse=True)


@pytest.mark.parametrize(
    ("walls", "expected"),
    [
        ([10.0] * 20, 1),
        ([500.0, 30.0, 20.0] + [10.0] * 20, 3),
        ([900.0] + [10.0] * 20, 1),
        ([40.0] * 5 + [900.0] + [10.0] * 20, 6),  # eager, then compiled at the fifth step
        ([10.0] * 5 + [900.0] + [10.0] * 20, 1),  # a slow step among steady ones is no warm-up
        ([10.0], 1),
        ([], 0),
    ],
)
def test_warm_up_ends_at_the_first_step_that_looks_like_the_later_ones(walls: list[float], expected: int) -> None:
    assert warmup(walls) == expected


def test_settling_lasts_until_what_the_workers_piled_up_is_used() -> None:
    assert settling([]) == 1
    assert settling([{"num_workers": 0, "prefetch_factor": None}]) == 1
    assert settling([{"num_workers": 4, "prefetch_factor": 2}, {"num_workers": 1, "prefetch_factor": 2}]) == 9
    assert settling([{"num_workers": 64, "prefetch_factor": 8}]) == 25


@pytest.mark.parametrize(
    ("loaders", "steps"),
    [([], 2), ([{"num_workers": 4, "prefetch_factor": 2}], 9), ([{"num_workers": "x"}], 2), (3, 2), (["x"], 2),
     ([{"num_workers": float("inf"), "prefetch_factor": 2}], 2)],
)  # fmt: skip
def test_two_steps_at_least_settle_whatever_a_journal_says(loaders: object, steps: int) -> None:
    assert doubted(({"type": "facts", "loaders": loaders}, {"type": "facts"})) == steps


def test_where_we_end_the_program_the_training_is_its_loop(program: Program) -> None:
    """It evaluates first, for longer than we let it train."""
    for _ in range(300):
        program.forward(4, flags=EVALUATION)
    program.train(50)
    assert [loop.kind for loop in find_loops(program.events)] == [FORWARDS, UPDATES]
    assert [loop.kind for loop in find_loops(program.events, cut_short=True)] == [UPDATES, FORWARDS]


def test_evaluation_between_updates_is_part_of_the_training_whatever_it_takes(program: Program) -> None:
    """Validated after every tenth step, twice as long as it trains; what is evaluated afterwards is another loop."""
    for _ in range(9):
        program.train(10)
        for _ in range(50):
            program.forward(4, flags=EVALUATION)
    assert [loop.kind for loop in find_loops(program.events)] == [UPDATES, FORWARDS]
    for _ in range(1000):
        program.forward(4, flags=EVALUATION)
    assert [loop.kind for loop in find_loops(program.events)] == [FORWARDS, UPDATES]


@given(st.lists(st.integers(0, 400), max_size=6))
def test_steps_are_the_same_however_the_journal_is_cut_into_pieces(cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        program = Program(patch, {7: (event_kinds.PROFILE, 3), 30: (event_kinds.SAMPLE, 2)})
        program.train(12)
        program.forward(1, module=5, flags=EVALUATION)
        program.train(25)
        program.recorder.rests((UPDATES, 0))
        program.recorder.rested((UPDATES, 0), 3, [program.now + n * MS for n in range(1, 4)])
        program.work(4)
        program.train(6)
        events = program.events
    finder, found = Finder(2), []
    for piece in np.split(events, sorted(min(cut, len(events)) for cut in cuts)):
        found += list(finder.feed(piece))
    whole = find_loops(events)
    assert {key for key, _ in found} == {(loop.kind, loop.number) for loop in whole}
    for loop in whole:
        assert [step for key, step in found if key == (loop.kind, loop.number)] == list(loop.steps)
