"""Stretches and rests on a clock of the test's own."""

from __future__ import annotations

from math import inf

import pytest

from gobrrr.capture.session.pause import (
    KNOWN,
    LEAST_SHARE,
    LONG_STEP,
    MIN_REST,
    MOST_SHARE,
    RESERVE,
    STRETCH,
    Pacing,
    share,
)

US = 1000


def run(pacing: Pacing, step: int, cost: int, cycles: int) -> tuple[int, int]:
    """(watched, resting) steps of so many cycles of a loop whose hooks cost `cost` per step."""
    watched = resting = 0
    for _ in range(cycles):
        rest = 0
        while not rest:
            rest = pacing.watched(step + cost)
            watched += 1
        resting += rest
        pacing.rested([step] * rest, cost)
    return watched, resting


@pytest.mark.parametrize(("step", "cost"), [(200 * US, 90 * US), (1000 * US, 100 * US), (10_000 * US, 150 * US)])
def test_watching_takes_its_share_and_no_more(step: int, cost: int) -> None:
    watched, resting = run(Pacing(), step, cost, 40)
    taken = watched * cost / ((watched + resting) * step)
    assert 0.9 * share(step) < taken <= 1.05 * share(step)


def test_what_the_counter_takes_is_not_there_for_stretches() -> None:
    assert share(10e6) == share(2e6) == MOST_SHARE
    assert share(1e6) == pytest.approx(0.004)
    assert share(0.2e6) == share(1) == share(0) == LEAST_SHARE


def test_long_steps_are_all_watched() -> None:
    pacing = Pacing()
    assert not any(pacing.watched(LONG_STEP + 1) for _ in range(10 * STRETCH))


def test_costs_that_read_as_nothing_are_not_believed() -> None:
    watched, resting = run(Pacing(), 200 * US, 0, 20)
    assert resting > 5 * watched


def test_stretches_grow_longer() -> None:
    pacing = Pacing()
    run(pacing, 1000 * US, 100 * US, 100)
    assert 2 * STRETCH < pacing.length < 3 * STRETCH


def test_what_comes_between_begins_the_stretch_anew() -> None:
    pacing = Pacing()
    for _ in range(STRETCH - 1):
        assert not pacing.watched(1000 * US)
    pacing.again()
    assert not pacing.watched(1000 * US)


def test_a_rest_ends_early_only_once_costs_are_known_and_then_not_for_ever() -> None:
    pacing = Pacing()
    assert pacing.earliest() == inf
    run(pacing, 1000 * US, 100 * US, KNOWN + 20)
    assert pacing.earliest() == pacing.length + MIN_REST, "there is some to spare, but a rest must tell its cost"
    woken = 0
    while (early := pacing.earliest()) <= pacing.length + MIN_REST and woken < 100:
        while not pacing.watched(1100 * US):
            pass
        pacing.rested([1000 * US] * int(early), 100 * US)
        woken += 1
    assert 1 <= woken <= RESERVE + 1
    assert pacing.length + MIN_REST < early < 100_000, "earned in the meantime"


def test_a_rest_of_a_few_slow_steps_does_not_say_how_long_a_step_is() -> None:
    pacing = Pacing()
    run(pacing, 1000 * US, 100 * US, KNOWN)
    pacing.rested([9000 * US] * (MIN_REST - 1), None)
    assert pacing.step_ns == 1000 * US
