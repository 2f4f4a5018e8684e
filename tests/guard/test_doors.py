"""Each side door, from hand-made runs: just inside its limit nothing is said, beyond it the check of its name speaks.

Trainings that go through them are in test_sidedoors.py."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from gobrrr.guard.model.observation import Call, Data, Epoch, Observation, Step
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import Check
from gobrrr.guard.verdicts import side_effects


def run(*steps: Step, **more: Any) -> Observation:
    """A run of these steps."""
    return Observation(steps=steps, **more)


def speaking(
    baseline: Observation, candidate: Observation, again: Observation | None = None, *, order: bool = False,
    precision: str = "",
) -> list[Check]:  # fmt: skip
    """Checks that find something; the baseline repeats itself where `again` is not another."""
    found = side_effects.checks(baseline, candidate, again or baseline, order, precision)
    return [check for check in found if check.verdict != "exact"]


def names(found: list[Check]) -> list[tuple[str, str]]:
    """Who speaks, and what."""
    return [(check.name, check.verdict) for check in found]


def test_other_draws_are_told_where_the_baseline_repeats_its_own() -> None:
    plain, other = run(Step(random="a"), Step(random="b")), run(Step(random="a"), Step(random="c"))
    (found,) = speaking(plain, other)
    assert (found.name, found.verdict) == ("random draws", "changed") and "from step 2 on" in found.reason
    assert names(speaking(plain, other, order=True)) == [("random draws", "bounded")]
    assert speaking(plain, other, again=run(Step(random="a"), Step(random="x"))) == []


def copy(values: list[float], name: str) -> Seen:
    """A copy of the weights as it was seen once."""
    data = np.array(values)
    return Seen(data.shape, "float32", name, float(np.linalg.norm(data)), 0, data.tobytes())


def moving(*sides: list[list[float]], shape: str = "2") -> Observation:
    """Copies of one shape, look by look."""
    return run(*(Step(copies={shape: tuple(copy(values, repr(values)) for values in side)}) for side in sides))


def test_a_copy_moves_as_far_as_the_baselines_does() -> None:
    plain = moving([[1.0, 0.0]], [[2.0, 0.0]])
    assert speaking(plain, moving([[1.0, 0.0]], [[2.049, 0.0]])) == []
    further = moving([[1.0, 0.0]], [[2.051, 0.0]])
    (found,) = speaking(plain, further)
    assert (found.name, found.verdict) == ("copies", "wrong")
    assert "moves otherwise (shape 2) by step 2" in found.reason
    assert speaking(plain, further, order=True) == [] and speaking(plain, further, precision="bfloat16") == []


def test_a_copy_that_stands_still_is_told_whatever_was_asked_for() -> None:
    plain, stuck = moving([[1.0, 0.0]], [[2.0, 0.0]]), moving([[1.0, 0.0]], [[1.0, 0.0]])
    for more in ({}, {"order": True}, {"precision": "bfloat16"}):
        (found,) = speaking(plain, stuck, **more)
        assert (found.name, found.verdict) == ("copies", "wrong") and "no longer moves" in found.reason
    assert speaking(stuck, plain) == [], "a remedy may keep copies of its own"
    both = moving([[1.0, 0.0], [5.0, 5.0]], [[2.0, 0.0], [6.0, 5.0]])
    assert speaking(plain, both) == []


@pytest.mark.parametrize(("apart", "told"), [(0.024, True), (0.026, False)])
def test_copies_are_judged_where_two_runs_of_the_baseline_move_alike(apart: float, told: bool) -> None:
    plain, again = moving([[1.0, 0.0]], [[2.0, 0.0]]), moving([[1.0, 0.0]], [[2.0 + apart, 0.0]])
    assert bool(speaking(plain, moving([[1.0, 0.0]], [[2.0, 1.0]]), again)) is told


def test_copies_are_compared_with_those_of_the_look_before() -> None:
    """Steps between two looks say nothing of copies."""
    looks = moving([[1.0, 0.0]], [[2.0, 0.0]], [[3.0, 0.0]]).steps
    plain, stuck = run(looks[0], Step(), looks[2]), run(looks[0], Step(), looks[0])
    (found,) = speaking(plain, stuck)
    assert "by step 3" in found.reason
    assert speaking(run(Step(), looks[0]), run(Step(), looks[1])) == [], "one look is no movement"


def test_copies_that_came_or_went_are_not_known() -> None:
    came = moving([], [[2.0, 0.0]])
    assert speaking(came, moving([], [[2.0, 0.0]])) == []
    assert speaking(came, moving([[1.0, 0.0]], [[1.0, 0.0]])) == []
    other_shape = [np.array([1.0]), np.array([1.0, 2.0])]
    assert math.isnan(side_effects._apart(other_shape[:1], other_shape[1:]))
    assert side_effects._apart([np.zeros(2)], [np.ones(2)]) == 0.0


@pytest.mark.parametrize(("field", "value", "word"), [("file_writes", 2, "2 files"), ("saved", ("x",), "torch.save")])
def test_files_are_counted_where_the_baseline_repeats_its_own(field: str, value: Any, word: str) -> None:
    plain = run(Step(), Step(file_writes=1, saved=("w",)))
    other = run(Step(), msgspec.structs.replace(plain.steps[1], **{field: value}))
    (found,) = speaking(plain, other)
    assert (found.name, found.verdict) == ("files", "changed") and word in found.reason and "step 2" in found.reason
    assert speaking(plain, other, again=run(*other.steps)) == [], "the baseline does so too"


def lines(*numbers: float, digits: int = 4) -> Observation:
    """One line per number."""
    return Observation(printed={"loss #": tuple((f"{number:.{digits}f}",) for number in numbers)})


@pytest.mark.parametrize(
    ("baseline", "again", "candidate", "told"),
    [
        (2, 3, 3, False), (2, 1, 1, False), (1, 2, 2, False), (3, 4, 4, False), (2, 4, 9, False),
        (2, 2, 3, True), (2, 2, 1, True), (2, 3, 5, True), (3, 3, 4, False), (3, 3, 5, True), (9, 9, 10, False),
    ],
)  # fmt: skip
def test_as_many_lines_as_two_runs_of_the_baseline_agree_on(
    baseline: int, again: int, candidate: int, told: bool
) -> None:
    runs = [Observation(printed={"saved": ((),) * count}) for count in (baseline, candidate, again)]
    assert names(speaking(*runs)) == ([("printed", "changed")] if told else [])


@pytest.mark.parametrize(
    ("last", "precision", "told"),
    [
        (1.00099, "", False), (1.00401, "", True),
        (1.0499, "bfloat16", False), (1.2, "bfloat16", True),
    ],
)  # fmt: skip
def test_how_far_a_printed_number_may_lie_from_its_steps(last: float, precision: str, told: bool) -> None:
    """Numbers that stay; half of the distance counts, since the last two lines are compared."""
    plain, other = lines(1.0, 1.0, 1.0), lines(1.0, 1.0, last)
    assert names(speaking(plain, other, precision=precision)) == ([("printed", "changed")] if told else [])


def test_numbers_of_the_line_before_are_stale() -> None:
    losses = [4.0 - 0.05 * number for number in range(10)]
    plain = lines(*losses)
    assert speaking(plain, lines(*(x + 0.024 for x in losses))) == []
    assert names(speaking(plain, lines(*(x + 0.026 for x in losses)))) == [("printed", "changed")]
    stale = lines(losses[0], *losses[:9])
    assert names(speaking(plain, stale)) == [("printed", "changed")]
    assert speaking(plain, stale, order=True) == [], "other draws have other losses"
    assert speaking(plain, stale, again=lines(*(x + 1 for x in losses))) == [], "nor do the baseline's own agree"


@pytest.mark.parametrize(("count", "told"), [(2, False), (3, True)])
def test_two_lines_are_too_few_to_be_stale(count: int, told: bool) -> None:
    plain, other = lines(*range(1, count + 1)), lines(*(x + 1 for x in range(1, count + 1)))
    assert bool(speaking(plain, other)) is told


def test_a_choice_that_is_printed_may_be_another_at_a_lower_precision() -> None:
    plain, other = lines(7, 9, 7, digits=0), lines(7, 300, 7, digits=0)
    assert speaking(plain, other, precision="bfloat16") == [] and speaking(plain, other) != []


def test_numbers_to_one_digit_may_be_off_by_two_of_the_last() -> None:
    assert speaking(lines(1.0, 1.0, 1.0, digits=1), lines(1.0, 1.2, 1.2, digits=1)) == []
    assert speaking(lines(1.0, 1.0, 1.0, digits=1), lines(1.0, 1.3, 1.2, digits=1)) != []


EPOCH = Epoch("Pictures", 4, num=64, unique=60, indices="i", items={"1": "a", "2": "b"}, batch="c")


def epoch(**more: Any) -> Observation:
    """A run that read one loader."""
    return Observation(epochs=(msgspec.structs.replace(EPOCH, **more),))


OTHER = {
    "has 63 samples, the baseline's 64": {"num": 63},
    "has 59 different samples": {"unique": 59},
    "holds other samples": {"indices": "j"},
    "vary from the same random state": {"draws_alone": True, "items": {}, "batch": None},
    "sample 2 of Pictures is another": {"items": {"1": "a", "2": "x"}, "batch": "x"},
    "make another batch": {"batch": "x"},
}


@pytest.mark.parametrize("word", OTHER)
@pytest.mark.parametrize("order", [False, True])
def test_each_way_in_which_an_epoch_is_another_is_named(word: str, order: bool) -> None:
    (found,) = [check for check in speaking(epoch(), epoch(**OTHER[word]), order=order) if check.name == "epochs"]
    assert found.verdict == "wrong" and word in found.reason
    assert speaking(epoch(), epoch(**OTHER[word]), again=epoch(**OTHER[word])) == [], "the baseline does so too"


@pytest.mark.parametrize("field", ["num", "unique", "indices", "batch"])
def test_what_could_not_be_had_of_an_epoch_is_not_held_against_it(field: str) -> None:
    for baseline, candidate in ((epoch(), epoch(**{field: None})), (epoch(**{field: None}), epoch())):
        assert speaking(baseline, candidate) == []


def test_other_items_make_another_batch() -> None:
    assert speaking(epoch(), epoch(items={"1": "a"}, batch="x")) == []


def test_samples_in_another_form_are_the_same_where_the_batch_is() -> None:
    assert speaking(epoch(), epoch(items={"1": "x", "2": "y"})) == []


def test_another_order_is_proven_by_indices() -> None:
    def said(baseline: Observation, candidate: Observation) -> tuple[str, str]:
        (found,) = [c for c in side_effects.checks(baseline, candidate, baseline, True, "") if c.name == "epochs"]
        return found.verdict, found.reason

    assert said(epoch(), epoch()) == ("exact", "the same samples in an epoch")
    unlisted = epoch(indices=None)
    assert said(unlisted, epoch())[0] == said(unlisted, unlisted)[0] == "bounded"
    verdict, reason = said(epoch(), unlisted)
    assert verdict == "unverified" and "can't be listed" in reason
    alone = epoch(draws_alone=True)
    assert said(alone, alone)[0] == "bounded"
    more = Observation(epochs=(EPOCH, EPOCH))
    assert said(epoch(), more) == ("unverified", "other loaders were read")
    assert speaking(epoch(), more) == []


def given(*moments: tuple[float, ...], training: bool = True) -> Observation:
    """A call with these moments in each step."""
    return run(*(Step(calls=(Call("m", training, Data("d", moments=each)),)) for each in moments))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("off", "told"), [(0.0199, False), (0.0201, True)])
def test_means_and_spreads_of_inputs_may_differ_by_a_part_of_their_spread(which: int, off: float, told: bool) -> None:
    other = (off, 1.0, 10.0) if which == 0 else (0.0, 1.0 + off, 10.0)
    (*_, found) = side_effects.checks(given(*[(0.0, 1.0, 10.0)] * 3), given(*[other] * 3), None, True, "")
    assert found.name == "inputs" and found.verdict == ("wrong" if told else "exact")
    assert not told or ("mean", "spread")[which] in found.reason


@pytest.mark.parametrize(("deviations", "told"), [(4.9, False), (5.1, True)])
def test_means_of_inputs_may_differ_by_five_standard_errors(deviations: float, told: bool) -> None:
    """Three calls with means 1 apart have the standard error 1/sqrt(3); the spread is small."""
    means = np.array([-1.0, 0.0, 1.0])
    plain, other = (given(*((mean + by, 0.1, 10.0) for mean in means))
                    for by in (0.0, deviations * math.sqrt(2 / 3)))  # fmt: skip
    (*_, found) = side_effects.checks(plain, other, None, True, "")
    assert found.verdict == ("wrong" if told else "exact")


def test_inputs_of_evaluations_and_single_calls_have_no_spread_to_compare() -> None:
    plain, far = [(0.0, 1.0, 10.0)] * 3, [(9.0, 1.0, 10.0)] * 3
    for few in (given(*far[:1]), given(*far, training=False), given(*[()] * 3), given(*[(9.0, 1.0)] * 3)):
        assert speaking(given(*plain), few, order=True) == []
    assert speaking(given(*plain), given(*far)) == [], "asked only where the order may change"
