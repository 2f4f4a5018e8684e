"""The statistics of paired blocks, against formulas by hand and many simulated trials."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.trial import statistics
from gobrrr.trial.statistics import compare, holm, interval, levels, quadruple, sign_test, spent

LOGS = st.lists(st.floats(-0.5, 0.5).filter(lambda v: abs(v) > 1e-6), min_size=6, max_size=40)


def test_a_quadruple_is_free_of_linear_drift() -> None:
    """Both arms take 100, growing by 10 from block to block, as A B B A: 100 110 120 130."""
    assert quadruple(100, 110, 120, 130) == pytest.approx(math.log(math.sqrt(100 * 130 / (110 * 120))))
    assert abs(quadruple(100, 101, 102, 103)) < 1e-4 < abs(math.log(100 / 101))
    assert quadruple(20, 10, 10, 20) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("positive", "negative", "p"), [(6, 0, 2 / 64), (5, 1, 14 / 64), (8, 2, 112 / 1024), (3, 3, 1)]
)
def test_the_sign_test_by_hand(positive: int, negative: int, p: float) -> None:
    assert sign_test([1.0] * positive + [-1.0] * negative + [0.0]) == pytest.approx(p)


def test_no_values_say_nothing() -> None:
    assert sign_test([]) == 1.0 and interval(np.array([])) == (-math.inf, math.inf)
    assert compare([]).verdict == "inconclusive" and compare([0.3] * 5).verdict == "inconclusive"


@given(LOGS)
def test_swapping_the_arms_swaps_the_verdict(logs: list[float]) -> None:
    one, other = compare(logs), compare([-log for log in logs])
    swapped = {"faster": "slower", "slower": "faster"}
    assert other.median == pytest.approx(1 / one.median)
    assert other.p_value == one.p_value
    if one.verdict in swapped and other.verdict in swapped:
        assert other.verdict == swapped[one.verdict]


@given(LOGS)
def test_the_interval_holds_the_median(logs: list[float]) -> None:
    found = compare(logs)
    assert found.low <= found.median <= found.high
    assert compare(logs) == found, "the same seed gives the same interval"


@given(st.floats(1e-3, 1e12), st.lists(st.floats(0.5, 2), min_size=4, max_size=4))
def test_the_unit_of_time_does_not_matter(unit: float, times: list[float]) -> None:
    assert quadruple(*(unit * t for t in times)) == pytest.approx(quadruple(*times), abs=1e-9)


def test_verdicts() -> None:
    rng = random.Random(0)
    assert compare([rng.gauss(0.1, 0.02) for _ in range(12)]).verdict == "faster"
    assert compare([rng.gauss(-0.1, 0.02) for _ in range(12)]).verdict == "slower"
    assert compare([rng.gauss(0.0, 0.002) for _ in range(12)]).verdict == "equivalent"
    assert compare([0.004] * 12).verdict == "equivalent", "proven, and too small to matter"
    doubtful = compare([rng.gauss(0.02, 0.1) for _ in range(12)])
    assert doubtful.verdict == "inconclusive" and doubtful.needed is not None and doubtful.needed > 12


def test_blocks_that_are_needed_grow_with_the_square() -> None:
    values = np.array([0.0, 0.2] * 10)
    four = statistics.quadruples_needed(values, 0.1, 0.4)
    assert four == 20 * 16


def test_planned_quadruples_find_their_effect() -> None:
    """n for 2 % at a scatter of 2 %: ((1.96 + 1.28) * 1.2533)^2 = 16.5."""
    assert statistics.quadruples_for(0.02, 0.02) == 17
    assert statistics.quadruples_for(0.02, 0.0) == statistics.FEWEST


def test_holm_by_hand() -> None:
    """At 5 %: 0.01 < 0.05/4, 0.013 < 0.05/3, 0.03 > 0.05/2 stops there, and 0.04 falls with it."""
    assert holm([0.03, 0.01, 0.04, 0.013]) == [False, True, False, True]
    assert holm([]) == [] and holm([0.05]) == [True]


def test_levels_spend_the_error_once() -> None:
    """O'Brien-Fleming type at half and at all: 0.0056 and the rest (Lan and DeMets 1983)."""
    assert spent(0.5) == pytest.approx(0.0056, abs=1e-4) and spent(1.0) == pytest.approx(0.05)
    assert sum(levels((0.5, 0.75, 1.0))) == pytest.approx(0.05)
    assert spent(0.0) == 0.0


def test_break_even() -> None:
    assert statistics.break_even(60.0, 100e6, 90e6) == pytest.approx(6000)
    assert statistics.break_even(60.0, 90e6, 100e6) is None
