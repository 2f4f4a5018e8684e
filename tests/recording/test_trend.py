"""The median and the course of a run's steps, in memory that does not grow."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.recording.live.live_state import BINS, SAMPLE, Trend
from gobrrr.report.told.bars import ASCII, spark


def of(walls: list[int]) -> Trend:
    trend = Trend()
    for wall in walls:
        trend.add(wall)
    return trend


@given(st.lists(st.integers(1, 10**13), min_size=1, max_size=300).filter(lambda walls: len(walls) % 2))
def test_the_median_is_right_within_half_a_percent(walls: list[int]) -> None:
    assert of(walls).median == pytest.approx(float(np.median(walls)), rel=0.00501)


def test_of_no_step_nothing_is_known() -> None:
    assert (Trend().median, Trend().change, Trend().history) == (None, None, ())


@pytest.mark.parametrize("last", [0.5, 1.0, 1.2, 3.0])
def test_the_change_is_that_of_the_last_quarter(last: float) -> None:
    walls = (10**6 * np.linspace(1.0, last, 5000)).astype(int)
    quarters = np.median(walls[-1250:]) / np.median(walls[:1250])
    assert of(walls.tolist()).change == pytest.approx(quarters - 1, rel=0.05, abs=0.01)


def test_the_first_piece_is_in_no_quarter() -> None:
    assert of([10**9, *[10**6] * 7]).change is None, "seven pieces behind it are too few"
    assert of([10**9, *[10**6] * 8]).change == 0.0
    assert of([10**9, 10**6, *[2 * 10**6] * 6, 3 * 10**6]).change == pytest.approx(2.5 / 1.5 - 1)


def test_one_long_first_step_is_no_trend() -> None:
    assert of([10**9, *[10**6] * 100]).change == 0.0


def test_a_million_steps_take_no_more_room_than_a_thousand() -> None:
    trend = of([10**6 + n % 1000 for n in range(1_000_000)])
    assert trend.num == 1_000_000
    assert len(trend.history) < 2 * BINS and len(trend._open) <= 2 * SAMPLE
    assert sum(map(sys.getsizeof, (trend._classes, trend._done, trend._open))) < 100_000


def test_noise_is_drawn_low_and_one_long_step_flattens_nothing() -> None:
    assert set(spark([100, 101, 99, 100])) <= set("▃▄▅▆")
    assert spark([100, 100, 180, 10_000]) == "▁▁▇█" or spark([100, 180, 100, 100, 10_000])[1] in "▆▇"
    assert spark([]) == ""
    assert spark([5, 5]).translate(ASCII).isascii()
    low, high = spark([100, 200]).translate(ASCII)
    assert low != high
