"""When windows open and how large they are, on step times that a test makes up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.capture.session import window_plan
from gobrrr.capture.session.window_plan import SECOND, is_steady

MS = 1_000_000


def opens_after(walls: list[int]) -> int | None:
    """Number of steps after which the first window opens."""
    return next((n for n in range(len(walls) + 1) if is_steady(walls[:n])), None)


def test_steady_steps_are_watched_for_half_a_second() -> None:
    assert opens_after([50 * MS] * 100) == 11, "the first one is warm-up"


def test_few_long_steps_are_enough() -> None:
    assert opens_after([150 * MS] * 20) == 1 + window_plan.MIN_STEPS
    assert opens_after([5 * SECOND] * 20) == opens_after([350 * MS] * 20) == 1 + 3
    assert opens_after([300 * MS] * 20) == 1 + 4, "a program of eight steps is looked at before it ends"


def test_a_short_program_on_a_crowded_machine_is_looked_at_before_it_ends() -> None:
    draw = random.Random(1)
    for step, num, latest in ((23 * MS, 80, 40), (1100 * MS, 8, 6), (290 * MS, 20, 13)):
        for _ in range(100):
            opened = opens_after([int(step * draw.choice([0.8, 1.0, 1.3, 2.0])) for _ in range(num)])
            assert opened is not None and opened <= latest


def test_steps_of_half_a_minute_are_seen_within_minutes() -> None:
    walls = [30 * SECOND] * 20
    assert opens_after(walls) == 1 + 2
    looked_at = [
        window_plan.profile_steps(walls[0], 60 * SECOND),
        window_plan.count_steps(walls[0]),
        window_plan.sample_steps(walls[0], SECOND),
    ]
    assert looked_at == [1, 1, 1] and window_plan.settle_steps(walls[0], 9) == 1
    assert (window_plan.count_steps(SECOND), window_plan.settle_steps(SECOND, 9)) == (3, 9)


def test_short_steps_wait_for_their_time_or_their_number() -> None:
    assert opens_after([MS] * 1000) == 1 + window_plan.MANY_STEPS
    assert opens_after([4 * MS] * 1000) == 1 + 63, "a quarter of a second"
    assert opens_after([5 * MS] * 80) == 1 + 50, "which leaves thirty to look at"
    assert opens_after([9 * MS] * 1000) == 1 + 50 and opens_after([12 * MS] * 1000) == 1 + 42


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_slow_first_steps_are_not_counted(slow: int) -> None:
    opened = opens_after([2 * SECOND] * slow + [50 * MS] * 100)
    assert opened is not None
    assert opened >= slow + 10, "half a second of warm steps"


@pytest.mark.parametrize("at", [0, 5])
def test_a_compilation_does_not_make_the_steps_steady(at: int) -> None:
    """Eager until the graph is there, then one long step, then fast ones."""
    walls = [100 * MS] * at + [20 * SECOND] + [40 * MS] * 100
    opened = opens_after(walls)
    assert opened is not None
    assert opened >= at + 1 + window_plan.MIN_STEPS, "the compilation's own time is no patience"


def test_steps_that_still_change_wait() -> None:
    falling = [int(200 * MS * 0.9**n) + 20 * MS for n in range(100)]
    level = opens_after(falling)
    assert level is not None
    assert level > opens_after([60 * MS] * 60)  # type: ignore[operator]


def test_what_never_gets_steady_is_looked_at_after_a_while() -> None:
    draw = random.Random(0)
    wild = [draw.choice([10, 200]) * MS for _ in range(500)]
    opened = opens_after(wild)
    assert opened is not None
    assert opened <= window_plan.PATIENCE_STEPS + window_plan.MIN_STEPS + 20
    growing = [(10 + 10 * n) * MS for n in range(200)]
    assert opens_after(growing) is not None


def test_a_caller_may_ask_for_a_longer_plain_phase() -> None:
    assert not is_steady([50 * MS] * 40, 10 * SECOND)
    assert is_steady([50 * MS] * 11, SECOND // 2)


@given(st.lists(st.integers(1, 10 * SECOND), max_size=80))
def test_it_never_raises_and_patience_is_bounded(walls: list[int]) -> None:
    steady = is_steady(walls)
    assert isinstance(steady, bool)
    if len(walls) <= 4:  # so few are enough where the usual one takes a third of a second: then two at least do
        assert not steady or sum(walls) >= 0.66 * SECOND


@given(st.floats(0, 1e12), st.floats(1e6, 1e12))
def test_windows_stay_within_their_bounds(step_ns: float, budget_ns: float) -> None:
    long = step_ns >= window_plan.LONG
    assert (1 if long else 2) <= window_plan.profile_steps(step_ns, budget_ns) <= 8
    assert (1 if long else 3) <= window_plan.sample_steps(step_ns, budget_ns) <= 2000
    assert 0.001 <= window_plan.sample_interval(step_ns) <= 0.010


def test_windows_are_about_a_second_of_plain_time() -> None:
    budget = 60.0 * SECOND
    assert window_plan.profile_steps(300 * MS, budget) == 4
    assert window_plan.profile_steps(5 * SECOND, budget) == 2
    assert window_plan.sample_steps(300 * MS, budget) == 6
    assert window_plan.sample_steps(5 * SECOND, budget) == 3
    assert window_plan.sample_interval(500 * MS) == 0.005
