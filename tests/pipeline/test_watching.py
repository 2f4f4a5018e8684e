"""What watching cost, from readings of journals made by hand; and what rests leave of steps and loaders."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from gobrrr.ledger.steps.other_loops import other_loops
from gobrrr.ledger.steps.step_stats import step_stats
from gobrrr.ledger.steps.watching_cost import BEAT_NS, _stretches, watching
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.facts import Facts, LoaderFacts
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.run_folder.iterators import loaders
from gobrrr.recording.run_folder.run import Recording, Start

STEP, COST, SWITCH = 1_000_000, 100_000, 500_000


class Journal:
    """A loop of 1 ms steps that hooks make 0.1 ms longer, and switching them half a millisecond."""

    def __init__(self) -> None:
        self.now = self.cpu = 10 * STEP
        self.rows: list[tuple[int, int, int, int]] = []

    def steps(self, count: int, cost: int = 0) -> None:
        for _ in range(count):
            self.now += STEP + cost
            self.cpu += STEP + cost
            self.rows.append((self.now, ev.BOUNDARY, 0, 1))

    def read(self, moment: int) -> None:
        self.rows.append((self.now, ev.SPENT, moment, self.cpu))

    def switch(self) -> None:
        self.now += SWITCH
        self.cpu += SWITCH

    def rest(self, count: int = 200) -> None:
        self.read(ev.LEAVING)
        self.rows.append((self.now, ev.REST_BEGIN, 0, 1))
        self.switch()
        self.steps(3)
        self.read(ev.RESTING)
        self.steps(32)
        self.read(ev.RESTED)
        self.steps(count - 35)
        self.rows.append((self.now, ev.REST_END, 0, count))

    def stretch(self) -> None:
        self.read(ev.WAKING)
        self.switch()
        self.steps(3, COST)
        self.read(ev.HOOKED)
        self.steps(29, COST)

    def recording(self) -> Recording:
        events = np.array(self.rows, np.int64).reshape(-1, 4)
        return Recording(
            Path(), Start(), events, tuple(find_loops(events)), (), None, (), (), {}, "exit", 0, (),
        )  # fmt: skip


@pytest.fixture
def journal() -> Journal:
    journal = Journal()
    journal.steps(33, COST)
    for _ in range(10):
        journal.rest()
        journal.stretch()
    journal.rest()
    return journal


def test_the_cost_is_that_of_stretches_over_all_steps(journal: Journal) -> None:
    found = watching(journal.recording())
    assert found is not None
    spent = 352 * COST + 20 * SWITCH + 2200 * BEAT_NS
    assert found.average == pytest.approx(spent / (352 + 2200) / STEP, rel=0.01)
    assert found.low == pytest.approx(found.average) == pytest.approx(found.high)
    assert found.hooked == pytest.approx(COST / STEP)


def test_the_plain_step_is_that_of_rests_where_hooks_show(journal: Journal) -> None:
    stats = step_stats(journal.recording())
    assert stats.plain_wall_ns == STEP
    assert set(stats.walls) == {STEP + COST}, "waits are those of watched steps, and stand beside their walls"
    assert (stats.count, stats.plain_count) == (33 + 10 * 32 + 11 * 200 - 1, 11 * 200)


def test_few_stretches_tell_nothing(journal: Journal) -> None:
    journal.rows = journal.rows[: 33 + 5 * (200 + 32 + 7)]
    assert watching(journal.recording()) is None


def test_a_stretch_in_which_another_loop_ran_is_left_out(journal: Journal) -> None:
    def count() -> int:
        recording = journal.recording()
        assert recording.main is not None
        return len(list(_stretches(recording, recording.main)))

    assert count() == 10
    at = next(i for i, row in enumerate(journal.rows) if row[1:3] == (ev.SPENT, ev.HOOKED))
    journal.rows.insert(at + 3, (journal.rows[at + 2][0] + 1, ev.BOUNDARY, 7, 2))
    assert count() == 9


def test_steps_of_a_rest_are_counted_and_not_plain(journal: Journal) -> None:
    (loop,) = journal.recording().loops
    assert len(loop.resting) == 11 * 200
    assert len(loop.plain) == 32 + 10 * 31, "the first step after a rest has the hooks' coming back in it"
    assert sum(step.settling for step in loop.steps) == 10


def test_epochs_and_batches_of_a_rest_are_counted() -> None:
    """4 batches, 3 steps of a rest with an iterator made in it, then an epoch that is watched."""
    batch = [(ev.DATA_BEGIN, 0, 0), (ev.DATA_END, 0, 0), (ev.BOUNDARY, 0, 1)]
    rest = [(ev.REST_BEGIN, 0, 1), (ev.ITER, -1, 1), *[(ev.BOUNDARY, 0, 1)] * 3, (ev.REST_END, 0, 3)]
    kinds = [(ev.ITER, -1, 0), *batch * 4, *rest, (ev.ITER, -1, 0), *batch]
    events = np.array([(10 * i, *row) for i, row in enumerate(kinds, 1)], np.int64)
    (loader,) = loaders(events, [{"id": 0, "key": ["a"]}])
    assert (loader["num_batches"], loader["unseen_epochs"]) == (5 + 3, 1)
    assert loader["iter_ns"] == [10, 10]


MAIN = (1, 0)
EPOCH_OVER = 1
Row = tuple[int, int, int]


def batch(loader: int, *forwards: tuple[int, int]) -> list[Row]:
    """Asked for and handed out, then (module, mode) of each forward on it."""
    return [(ev.DATA_BEGIN, loader, 0), (ev.DATA_END, loader, 0), *((ev.FORWARD, *each) for each in forwards)]


def over(loader: int) -> list[Row]:
    return [(ev.DATA_BEGIN, loader, 0), (ev.DATA_END, loader, EPOCH_OVER)]


def used(rows: list[Row], main: tuple[int, int] = MAIN, num_loaders: int = 2) -> list[LoaderFacts]:
    events = np.array([(10 * i, *row) for i, row in enumerate(rows, 1)], np.int64)
    raw = [{"id": n, "key": [str(n)]} for n in range(num_loaders)]
    return [msgspec.convert(each, LoaderFacts) for each in loaders(events, raw, main)]


UPDATE = [(ev.BOUNDARY, 0, 1)]
TRAINED, SEEN = (0, 3), (0, 0)
EVALUATED = [*([*batch(1, SEEN), (ev.BOUNDARY, 0, 2)]) * 5, *over(1)]


def test_batches_of_an_evaluation_are_not_the_steps() -> None:
    """An update takes two batches; after every second one five are evaluated, whose loader gives the most in all. Some
    steps are counted while the hooks rest."""
    step = batch(0, TRAINED) * 2 + UPDATE
    rest = [(ev.REST_BEGIN, 0, 1), *UPDATE * 3, (ev.REST_END, 0, 3)]
    training, validation = used([*(step * 2 + EVALUATED) * 4, *rest, *step * 2])
    assert validation.num_batches > training.num_batches
    assert (training.step_batches, validation.step_batches) == (2.0, 0.0)
    assert training.per_step(6) == 2, "however many steps were timed"
    assert Facts(loaders=(validation, training)).main_loader == training


def test_a_batch_that_a_rest_cuts_off_is_no_steps() -> None:
    step, cut = batch(0, TRAINED) + UPDATE, [*batch(0, TRAINED), (ev.REST_BEGIN, 0, 1), *UPDATE, (ev.REST_END, 0, 1)]
    (loader,) = used([*step * 4, *cut, *step * 4], num_loaders=1)
    assert loader.step_batches == 1.0


@pytest.mark.parametrize("mode", [3, 2, 0])
def test_a_teacher_before_or_behind_the_student_takes_no_batch_away(mode: int) -> None:
    """Also where the student trains in evaluation mode, or no forward has gradients that were seen."""
    student, teacher = (0, mode), (1, 1 if mode == 0 else 0)
    for forwards in ((teacher, student), (student, teacher)) if mode else ((teacher, student),):
        (loader,) = used((batch(0, *forwards) * 2 + UPDATE) * 6, num_loaders=1)
        assert loader.step_batches == 2.0 == loader.per_step(1)


def test_unlabelled_batches_of_a_teacher_count_beside_the_labelled() -> None:
    step = batch(0, (1, 0)) + batch(1, TRAINED) + UPDATE
    assert [loader.step_batches for loader in used(step * 6)] == [1.0, 1.0]


def test_a_training_before_the_main_one_has_its_own_batches() -> None:
    """Another optimizer's thousand steps were all told as the first of the main loop."""
    earlier = [*batch(0, TRAINED), (ev.BOUNDARY, 7, 1)]
    step = batch(1, TRAINED) + UPDATE
    first, second = used([*earlier * 50, *step * 20])
    assert first.step_batches == 0.0 and second.step_batches == 1.0
    assert Facts(loaders=(first, second)).main_loader == second


def test_a_loop_of_forwards_takes_its_batches_too() -> None:
    (loader,) = used(([*batch(0, SEEN), (ev.BOUNDARY, 0, 2)]) * 6, main=(2, 0), num_loaders=1)
    assert loader.step_batches == 1.0


def test_batches_of_steps_that_were_not_told_yet_are_not_the_first_ones() -> None:
    """Forwards or backward passes are waited with (steps/loops.py): 32 batches seemed to be the first step's."""
    step = batch(0, TRAINED) + UPDATE
    (loader,) = used([*batch(0, TRAINED) * 32, *step * 8], num_loaders=1)
    assert loader.step_batches == 1.0
    (loader,) = used(batch(0, TRAINED) * 2 + UPDATE, num_loaders=1)
    assert loader.step_batches == 2.0, "a step alone is all that there is"


def test_where_no_batch_is_a_steps_all_are_shared_out() -> None:
    """A loop by hand that the recording has no boundaries of."""
    (loader,) = used(batch(0) * 12, num_loaders=1)
    assert loader.step_batches == 0.0 and (loader.per_step(4), loader.per_step(0), loader.per_step(100)) == (3, 1, 1)


def test_of_another_loop_the_share_is_of_what_was_seen_of_both(journal: Journal) -> None:
    """Forwards between steps that a rest counts are nobody's: beside 2,200 of those they seemed a sixth of what they
    were."""
    for _ in range(50):
        journal.now += STEP
        journal.rows.append((journal.now, ev.BOUNDARY, 7, 2))
    recording = journal.recording()
    main, other = recording.loops
    seen = sum(step.wall for step in main.steps if not step.rests)
    (told,) = other_loops(recording)
    assert told.share == pytest.approx(50 * STEP / (50 * STEP + seen), rel=1e-6) and other.total < 50 * STEP
    assert told.beside == sum(not step.rests for step in main.steps) < len(main.steps) / 3
