"""The statistics of a loop: the median plain step, how sure it is, and what else the loop says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.ledger.model.ledger import StepStats
from gobrrr.ledger.steps import step_stats as stepstats
from gobrrr.ledger.steps.other_loops import other_loops
from gobrrr.ledger.steps.step_stats import median_interval, plain_steps, step_stats
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.run_folder.run import Recording, Start, Window
from tests.support.event_streams import EVALUATION, MS, Program

DRAWS = {
    "log-normal": (lambda rng, n: np.exp(rng.normal(0, 0.3, n)), 1.0),
    "exponential": (lambda rng, n: rng.exponential(1.0, n), math.log(2)),
    "heavy tails": (lambda rng, n: rng.standard_t(1.5, n), 0.0),
}


@pytest.mark.parametrize("count", [6, 7, 9, 12, 20, 50, 200])
@pytest.mark.parametrize("kind", DRAWS)
def test_a_95_percent_interval_covers_the_median_95_times_in_100(kind: str, count: int) -> None:
    draw, median = DRAWS[kind]
    rng = np.random.default_rng(20260 + count)
    intervals = (median_interval(draw(rng, count)) for _ in range(3000))
    covered = sum(low <= median <= high for low, high in intervals) / 3000
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("count", [6, 7, 12, 50])
def test_two_speeds_are_covered_nearly_as_often(count: int) -> None:
    """Interpolation is worst where no value lies near the median: steps that switch between two speeds."""
    rng = np.random.default_rng(count)
    intervals = (median_interval(rng.choice([1.0, 3.0], count) + rng.normal(0, 0.4, count)) for _ in range(3000))
    assert 0.90 <= sum(low <= 2.0 <= high for low, high in intervals) / 3000 <= 0.98


def test_a_99_percent_interval_is_wider() -> None:
    rng = np.random.default_rng(7)
    values = [rng.normal(size=40) for _ in range(2000)]
    covered = sum(low <= 0 <= high for low, high in (median_interval(v, 0.99) for v in values)) / 2000
    assert 0.98 <= covered <= 1.0
    narrow, wide = median_interval(values[0]), median_interval(values[0], 0.99)
    assert wide[0] < narrow[0] and narrow[1] < wide[1]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_values_give_their_whole_range(count: int) -> None:
    assert median_interval(list(range(count))) == (0.0, count - 1.0)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=300))
def test_the_interval_holds_the_median_and_lies_within_the_values(values: list[float]) -> None:
    low, high = median_interval(values)
    slack = 1e-9 * max(values)
    assert min(values) - slack <= low <= np.median(values) + slack
    assert np.median(values) - slack <= high <= max(values) + slack


def test_many_equal_values_are_known_exactly() -> None:
    assert median_interval([5.0] * 20_000) == (5.0, 5.0)


# a whole loop


def recording(program: Program, *facts: dict[str, Any], **costs: float) -> Recording:
    events = program.events
    return Recording(
        Path(), Start(costs=costs), events, tuple(find_loops(events)), (), None, (), facts, {}, None, 0, ()
    )


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def test_the_median_plain_step_and_what_stands_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch, windows={40: (event_kinds.PROFILE, 4)})
    program.slower = 3.0
    program.train(2, forward=503)  # slow first steps
    program.train(100)
    for _ in range(3):
        program.train(1, forward=1003)  # checkpoints
        program.train(20)
    stats = step_stats(recording(program))
    assert (stats.kind, stats.count, stats.profiled_count) == ("training", 164, 4)
    assert stats.plain_count + stats.warmup_count + 4 + 2 == stats.count, "two settle after the window"
    assert stats.warmup_count == 1
    assert stats.plain_wall_ns == 10 * MS
    assert (stats.low_ns, stats.high_ns) == (10 * MS, 10 * MS)
    assert stats.quartile_spread == 0.0
    assert stats.wall_ns == 30 * MS
    assert stats.outlier_ns == pytest.approx(3 * 1000 * MS / stats.plain_count)
    assert stats.mean_ns == stats.plain_wall_ns + stats.outlier_ns
    assert len(stats.waits) == len(stats.walls) == stats.plain_count
    assert set(stats.waits) == {2.0 * MS}


def test_what_watching_costs_is_no_slow_step(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is told of the rests where hooks make it longer; what slow steps add is of all, held against all."""
    program.train(100)
    monkeypatch.setattr(stepstats, "_told", lambda *_: np.full(20, 9.0 * MS))
    stats = step_stats(recording(program))
    assert stats.plain_wall_ns == 9 * MS and stats.outlier_ns == 0 and stats.average_ns == 9 * MS


def test_where_the_host_runs_ahead_a_step_is_the_mean_and_its_interval_that_of_batches(program: Program) -> None:
    """Four steps in which the host only launches, and one that waits for the work of all five: 50 ms each on the
    device. The median is a launch."""
    for _ in range(30):
        program.train(4, forward=3)
        program.train(1, forward=203)
    assert step_stats(recording(program)).plain_wall_ns == 10 * MS
    stats = step_stats(recording(program), device_ns=40 * MS)
    assert stats.plain_wall_ns == pytest.approx(50 * MS, rel=0.02) and stats.averaged
    assert 45 * MS < stats.low_ns <= stats.plain_wall_ns <= stats.high_ns < 55 * MS
    assert stats.quartile_spread < 0.05 and stats.outlier_ns < MS, "what is regular is no noise"
    assert step_stats(recording(program), device_ns=60 * MS).plain_wall_ns == 60 * MS, "no step is less than its work"


def test_filling_the_queue_is_no_drift_and_a_device_that_keeps_pace_changes_nothing(program: Program) -> None:
    program.train(12, forward=3)  # 10 ms each
    program.train(40, forward=13)
    slow = recording(program)
    assert step_stats(slow).drift == pytest.approx(1.0) and step_stats(slow, device_ns=20.1 * MS).drift == 0.0
    stats = step_stats(slow, device_ns=20.1 * MS)
    assert stats.plain_wall_ns == step_stats(slow).plain_wall_ns == 20 * MS and not stats.averaged
    assert stats.plain_count == 40 and stats.plain_count + stats.warmup_count == len(slow.main.plain)


def test_where_a_device_works_steps_after_the_profiled_window_are_not_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an H200's launches each cost a third more when the profiler was off again."""
    program = Program(monkeypatch, windows={40: (event_kinds.PROFILE, 4)})
    program.train(44)
    program.train(60, forward=7)
    events = program.events
    began, ended = (
        int(events[events[:, 1] == kind, 0][0]) for kind in (event_kinds.WINDOW_BEGIN, event_kinds.WINDOW_END)
    )
    window = Window("profile", (1, 0), 4, began, ended, (0, 0))
    found = replace(recording(program), windows=(window,))
    assert step_stats(found).plain_wall_ns == 14 * MS and step_stats(found).lingering == 0.0, "no kernel was seen"
    found = replace(found, trace=SimpleNamespace(kernels=[1], signals=frozenset()))
    stats = step_stats(found)
    assert (stats.plain_wall_ns, stats.lingering, stats.attached) == (10 * MS, pytest.approx(0.4), False)
    assert 30 <= stats.plain_count <= 40 and stats.warmup_count < 5


def test_where_few_steps_came_before_the_profiled_window_all_are_plain_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program(monkeypatch, windows={8: (event_kinds.PROFILE, 4)})
    program.train(12)
    program.train(60, forward=7)
    events = program.events
    began, ended = (
        int(events[events[:, 1] == kind, 0][0]) for kind in (event_kinds.WINDOW_BEGIN, event_kinds.WINDOW_END)
    )
    found = replace(recording(program), windows=(Window("profile", (1, 0), 4, began, ended, (0, 0)),))
    stats = step_stats(replace(found, trace=SimpleNamespace(kernels=[1], signals=frozenset())))
    assert stats.attached and stats.lingering == 0.0 and stats.plain_wall_ns == 14 * MS


def test_drift_is_told_with_its_sign(program: Program) -> None:
    for n in range(90):
        program.train(1, forward=3 + n * 0.1)
    assert step_stats(recording(program)).drift == pytest.approx(0.5, abs=0.1)


def test_steps_that_grow_are_held_against_those_around_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Program(monkeypatch, windows={20: (event_kinds.PROFILE, 4)})
    for n in range(120):
        growing.train(1, forward=3 + n)
    stats = step_stats(recording(growing))
    assert stats.beside_ns == pytest.approx((10 + 22) * MS, abs=2 * MS), "as long as the twenty-second"
    assert stats.plain_wall_ns > 2 * stats.beside_ns


def test_a_step_of_several_batches_and_updates_says_so(program: Program) -> None:
    for _ in range(60):
        for _ in range(5):
            program.wait(0, 2)
            program.forward(3)
            program.update(1, optimizer=1)
        program.update(1, optimizer=0)
    stats = step_stats(recording(program))
    assert stats.batches == 5 and dict(stats.updates) == {0: 1, 1: 5}


def test_a_step_of_one_batch_and_one_update(program: Program) -> None:
    program.train(60)
    stats = step_stats(recording(program))
    assert (stats.batches, stats.updates, stats.backwards) == (1, ((0, 1),), 0), "no backward was noted"
    assert stats.seen_ns == pytest.approx(60 * 10 * MS, rel=0.05)
    assert stats.process_cpu_ns is not None and stats.process_cpu_ns > 0


def test_few_steps_do_not_drift(program: Program) -> None:
    program.train(4)
    program.train(4, forward=8)
    assert step_stats(recording(program)).drift == 0.0


def test_spread_is_of_the_middle_half(program: Program) -> None:
    for n in range(200):
        program.train(1, forward=3 + 4 * (n % 2))
    assert step_stats(recording(program)).quartile_spread == pytest.approx(4 / 12)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_too_few_steps_have_no_median(program: Program, steps: int) -> None:
    program.train(steps)
    rec = recording(program)
    assert plain_steps(rec) == []
    assert step_stats(rec).plain_wall_ns == 0.0
    assert steps or step_stats(rec) == StepStats()


def test_of_one_step_nobody_knows_how_sure_it_is(program: Program) -> None:
    program.train(3)
    rec = recording(program)
    assert len(plain_steps(rec)) == 1
    stats = step_stats(rec)
    assert stats.plain_wall_ns > 0 and (stats.low_ns, stats.high_ns) == (0.0, 0.0)
    assert stats.beside_ns == 0.0, "no window stands beside any step"


def test_steps_of_no_length_divide_nothing(program: Program) -> None:
    program.train(40, 0, 0, 0, 0)
    stats = step_stats(recording(program))
    assert (stats.plain_wall_ns, stats.quartile_spread, stats.drift, stats.overhead_share) == (0.0, 0.0, 0.0, 0.0)


def test_watching_costs_what_its_hooks_were_timed_at(program: Program) -> None:
    program.train(101)
    watching = {"calls": 400, "ns_per_call": 2000.0, "lookups": 1000}
    stats = step_stats(recording(program, {"watching": {}}, {"watching": watching}, lookup_ns=100.0))
    assert stats.overhead_share == pytest.approx((400 * 2000 + 1000 * 100) / 100 / (10 * MS))
    assert step_stats(recording(program)).overhead_share == 0.0


def test_other_loops_are_named_with_their_share(program: Program) -> None:
    program.train(60)
    for _ in range(24):
        program.forward(20, module=3, flags=EVALUATION)
    line = {"file": "train.py", "line": 40, "function": "main"}
    facts = {"modules": [{"id": 3, "kind": "Classifier"}], "optimizers": [{"id": 0, "kind": "AdamW"}],
             "forward_spans": [{"id": 0}, {"id": 3, "span": "torn"}, {"id": 3, "span": line}]}  # fmt: skip
    (other,) = other_loops(recording(program, facts))
    assert (other.name, other.count, other.apart) == ("forwards of Classifier", 24, True)
    assert other.where == Span("train.py", 40, "main")
    assert other.share == pytest.approx(460 / (460 + 590)), "from the last update to the last forward that began"
    (nameless,) = other_loops(recording(program, {"modules": [{"id": 9, "kind": "X"}]}))
    assert nameless.name == "forwards of #3"


@pytest.mark.parametrize("forwards", [5, 10, 40])
def test_an_evaluation_now_and_then_is_told_with_its_first_and_last_forwards(program: Program, forwards: int) -> None:
    """The first are waited for as if an update might follow, and the last ends in the training's next step."""
    for _ in range(20):
        program.train(10)
        for _ in range(forwards):
            program.wait(1, 2)
            program.forward(8, module=0, flags=EVALUATION)
        program.epoch_ends(1, 5)
    program.train(2)
    rec = recording(program)
    (other,) = other_loops(rec)
    evaluated, trained = 20 * (10 * forwards + 5), 10 * 201
    assert other.share == pytest.approx(evaluated / (evaluated + trained), rel=0.01)
    assert (other.count, other.beside, other.apart) == (20 * forwards, len(rec.loops[0].steps), False)
    assert other.times == 20 and other.between == pytest.approx(other.share)


@pytest.mark.parametrize(("forwards", "after"), [(40, 62), (5, 62), (40, 0)])
def test_what_comes_after_an_evaluations_last_forward_is_told_apart(
    program: Program, forwards: int, after: float
) -> None:
    """A checkpoint of 250 ms was an evaluation of 5.75 ms for each update, which took 0.2."""
    for _ in range(20):
        program.train(10)
        for _ in range(forwards):
            program.forward(8, module=0, flags=EVALUATION)
        program.now += after * MS
    program.train(2)
    (other,) = other_loops(recording(program))
    evaluated = 8 * forwards + after
    assert other.between == pytest.approx(evaluated / (evaluated + 100.5), rel=0.03)
    assert other.after == pytest.approx(after / (evaluated + 100.5), rel=0.03)


@pytest.mark.parametrize("loader", [True, False])
@pytest.mark.parametrize("before", [0, 60])
def test_what_comes_before_an_evaluations_first_forward_is_told_apart(
    program: Program, before: float, loader: bool
) -> None:
    """Histograms of all weights were told as half of an evaluation. What its loader takes to start is its own."""
    for _ in range(20):
        program.train(10)
        program.now += before * MS
        if loader:
            program.recorder.note(event_kinds.ITER, 1)
            program.now += 30 * MS
        for _ in range(10):
            program.forward(8, module=0, flags=EVALUATION)
    program.train(2)
    (other,) = other_loops(recording(program))
    whole = before + 30 * loader + 80 + 100.5
    # Without a loader the time of one such step may have made its input.
    assert other.before == pytest.approx(max(0.0, before - 8 * (not loader)) / whole, rel=0.05, abs=0.01)
    assert other.between == pytest.approx((whole - 100.5) / whole, rel=0.03) and other.after == 0


@pytest.mark.parametrize("begins", [True, False])
def test_the_first_batch_of_an_evaluation_is_its_own(program: Program, begins: bool) -> None:
    """Also of a loader that was there already, and where the end of the training's epoch was asked for before."""
    for _ in range(20):
        program.train(10)
        if begins:
            program.epoch_ends(0, 3)
        program.wait(1, 60)
        for _ in range(10):
            program.forward(8, module=0, flags=EVALUATION)
    program.train(2)
    (other,) = other_loops(recording(program))
    assert other.before == pytest.approx(0.0, abs=0.02) and other.between > 0.5


def test_workers_that_stop_and_start_are_no_checkpoint(program: Program) -> None:
    """Those of the evaluation as its loader ends, those of the training as its iterator is made."""
    for _ in range(20):
        program.train(10)
        for _ in range(40):
            program.wait(1, 1)
            program.forward(2, module=0, flags=EVALUATION)
        program.epoch_ends(1, 100)
        program.recorder.note(event_kinds.ITER, -1)
        program.work(100)
    program.train(2)
    (other,) = other_loops(recording(program))
    assert other.after == 0 and other.between == pytest.approx(219 / (219 + 201), rel=0.03)


@pytest.mark.parametrize("between", [0, 1])
def test_what_comes_before_and_after_the_training_is_apart_from_it(program: Program, between: int) -> None:
    """TabNet predicts at the end: 16 forwards of a fifth of the time were a load on each of its steps."""
    for times in (20, 20 * between):
        for _ in range(times):
            program.forward(10, module=3, flags=EVALUATION)
        program.train(30)
    for _ in range(20):
        program.forward(10, module=3, flags=EVALUATION)
    (other,) = other_loops(recording(program))
    assert other.apart == (not between) and other.times == between
    assert other.between == pytest.approx(200 * between / (400 + 200 * between) * other.share, rel=0.1)


def test_a_model_that_is_trained_in_evaluation_mode_is_not_its_evaluation(program: Program) -> None:
    for _ in range(30):
        for _ in range(10):
            program.forward(6, flags=2)
            program.update(4)
        for _ in range(10):
            program.forward(10, flags=0)
    program.forward(6, flags=2)
    program.update(4)
    (other,) = other_loops(recording(program))
    assert other.share == pytest.approx(0.5, abs=0.01) and other.count == 300


def test_a_training_that_calls_no_module_goes_on_a_step_before_its_end(program: Program) -> None:
    for _ in range(30):
        for _ in range(10):
            program.update(10)
        for _ in range(10):
            program.forward(10, flags=0)
    program.update(10)
    (other,) = other_loops(recording(program))
    assert other.share == pytest.approx(0.5, abs=0.02)


def test_what_others_do_in_a_window_counts_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch, windows={40: (event_kinds.PROFILE, 100)})
    for _ in range(30):
        program.train(10)
        for _ in range(10):
            program.forward(10, flags=EVALUATION)
    program.train(1)
    (other,) = other_loops(recording(program))
    assert other.share == pytest.approx(0.5, abs=0.02)


def test_of_two_models_that_only_infer_each_has_its_steps(program: Program) -> None:
    for _ in range(20):
        for module in (1, 2):
            for _ in range(20):
                program.forward(10, module=module, flags=EVALUATION)
    shares = [loop.share for loop in other_loops(recording(program))]
    assert sum(shares) == pytest.approx(0.5, abs=0.05)


def test_what_another_loop_waits_for_its_loader_is_told_apart(program: Program) -> None:
    program.train(60)
    for _ in range(24):
        program.wait(0, 15)
        program.forward(5, module=3, flags=EVALUATION)
    (other,) = other_loops(recording(program))
    assert other.waits == pytest.approx(0.75, abs=0.02)
    assert step_stats(recording(program)).kind == "training"


def test_an_inference_loop_says_so(program: Program) -> None:
    for _ in range(40):
        program.forward(5, flags=EVALUATION)
    assert step_stats(recording(program)).kind == "inference"


def epochs(length: int, count: int, first: float, jitter: float = 0.0) -> tuple[Recording, list[float]]:
    """Epochs of `length` steps of 10 ms; the first of each, in which an iterator is made, takes `first` times that."""
    events: list[tuple[int, int, int, int]] = []
    now, walls = 0, []
    rng = np.random.default_rng(5)
    for number in range(length * count + 1):
        events.append((now, event_kinds.BOUNDARY, 1, 1))
        begins = number % length == 0
        if begins:
            events.append((now + 1, event_kinds.ITER, 0, 0))
        wall = 10.0 * MS * (first if begins else 1.0) * (1 + jitter * rng.standard_normal())
        walls.append(wall)
        now += int(wall)
    array = np.array(events, np.int64)
    recording = Recording(Path(), Start(), array, tuple(find_loops(array)), (), None, (), (), {}, "exit", 0, ())
    return recording, walls


@pytest.mark.parametrize(("to_inputs", "kind"), [(1, "inference"), (0, "training")])
def test_passes_that_lead_to_no_weight_train_nothing(to_inputs: int, kind: str) -> None:
    rows = [(step * 10 * MS, event_kinds.BACKWARD, -1, to_inputs) for step in range(1, 40)]
    rows += [(step * 10 * MS + 1, event_kinds.BOUNDARY, -1, 5) for step in range(1, 40)]
    events = np.array(sorted(rows), np.int64)
    found = Recording(Path(), Start(), events, tuple(find_loops(events)), (), None, (), (), {}, "exit", 0, ())
    assert step_stats(found).kind == kind and step_stats(found).backwards == 1


def test_plain_steps_are_of_the_sizes_that_were_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide layer trains itself and then a narrow one, which most steps are of; the window lies in the first."""
    program = Program(monkeypatch, {10: (event_kinds.PROFILE, 4)})
    sizes = {0: 0, 1: 1}
    monkeypatch.setattr(program.recorder, "_sizes", sizes.__getitem__)
    for optimizer, steps, ms in ((0, 30, 10), (1, 60, 2)):
        for _ in range(steps):
            program.update(ms, optimizer)
    stats = step_stats(recording(program))
    assert stats.count == 30 + 60 - 1 and stats.plain_wall_ns == pytest.approx(10 * MS)


def first_of_epochs(recorded: Recording) -> np.ndarray:
    """Lengths of the plain steps that begin an epoch, where these are a kind of their own."""
    plain = plain_steps(recorded)
    walls = np.array([step.wall for step in plain], float)
    return walls[stepstats.kinds(recorded, plain, walls)]


def test_first_steps_of_epochs_are_a_kind_of_their_own_and_no_noise() -> None:
    recorded = epochs(3, 30, first=2.0, jitter=0.01)[0]
    stats = step_stats(recorded)
    assert stats.quartile_spread < 0.05 and abs(stats.drift) < 0.05
    begins = first_of_epochs(recorded)
    assert len(begins) in (29, 30) and np.median(begins) == pytest.approx(20 * MS, rel=0.05)
    assert stats.plain_wall_ns == pytest.approx(10 * MS, rel=0.05)


def test_noise_stays_noise_where_epochs_begin() -> None:
    assert step_stats(epochs(3, 30, first=1.0, jitter=0.3)[0]).quartile_spread > 0.2
    assert not len(first_of_epochs(epochs(3, 30, first=1.02)[0]))


def test_two_epochs_are_no_kind() -> None:
    assert not len(first_of_epochs(epochs(40, 2, first=3.0)[0]))
