"""The statistics of paired blocks, against formulas by hand and many simulated trials."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.statistics import paired
from gobrrr.trial.statistics.paired import compare, compare_rounds, interval, levels, quadruple, sign_test, spent

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


@given(LOGS)
def test_the_interval_of_the_other_arm_is_its_mirror_image(logs: list[float]) -> None:
    low, high = interval(np.array(logs))
    assert interval(-np.array(logs)) == pytest.approx((-high, -low))


@pytest.mark.parametrize("edge", [1 - paired.BAND, 1 + paired.BAND])
def test_the_edges_of_the_band_are_in_it(edge: float) -> None:
    assert compare([math.log(edge)] * 6).verdict == "equivalent"
    assert compare([1.001 * math.log(edge)] * 6).verdict == ("slower" if edge < 1 else "faster")


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


def test_units_that_are_needed_grow_with_the_square() -> None:
    """An interval four times as wide as it may be wants 16 times as many."""
    assert paired.units_needed(20, 0.1, 0.4, 0.01, 6) == 20 * 16
    assert paired.units_needed(20, 0.001, 0.018, 0.01, 6) == 80, "to lie inside the band is nearer than to leave zero"
    assert paired.units_needed(1, 0.0, math.inf, 0.01, 6) is None


def test_planned_quadruples_find_their_effect() -> None:
    """n for 2 % at a scatter of 2 %: ((1.96 + 1.28) * 1.2533)^2 = 16.5."""
    assert paired.quadruples_for(0.02, 0.02) == 17
    assert paired.quadruples_for(0.02, 0.0) == paired.FEWEST


def test_students_quantiles_against_the_tables() -> None:
    """Two-sided 5 %: 2.262 at 9 degrees, 3.182 at 3; 0.1 %: 4.781 at 9. Normal where the variance is known."""
    for freedom, level, t in [(9, 0.05, 2.262), (3, 0.05, 3.182), (9, 0.001, 4.781), (30, 0.01, 2.750)]:
        assert paired.student_quantile(1 - level / 2, freedom) == pytest.approx(t, rel=0.015)
        assert paired.student_p(paired.student_quantile(1 - level / 2, freedom), freedom) == pytest.approx(level)
    assert paired.student_quantile(0.975, math.inf) == pytest.approx(1.96, abs=1e-3)
    assert paired.student_p(-1.96, math.inf) == pytest.approx(0.05, abs=1e-3)


def test_quiet_rounds_are_known_as_well_as_processes_allow() -> None:
    """No noise in blocks: the error of three rounds is sqrt(2 / 3) of a process's 1 %, 0.816 %, times 1.96."""
    found = compare_rounds([[0.1, 0.1]] * 3)
    assert math.log(found.high) - 0.1 == pytest.approx(1.96 * 0.00816, abs=2e-5)
    assert found.verdict == "faster" and found.p_value < 1e-9
    assert compare_rounds([[-0.1, -0.1]] * 3).verdict == "slower"
    assert compare_rounds([[0.0, 0.0]] * 3).verdict == "equivalent"
    assert compare_rounds([[0.1, 0.1]] * 2).verdict == "inconclusive", "two starts are no verdict"


def test_the_noise_of_blocks_adds_to_that_of_processes() -> None:
    """Two quadruples that differ by 4 %: their median has (4 % / 2)^2 of variance, three rounds a third of it."""
    error, freedom = paired.standard_error([np.array([0.08, 0.12])] * 3, 0.01)
    assert error**2 == pytest.approx((2 * 0.01**2 + 0.02**2) / 3, rel=0.1)
    assert freedom == pytest.approx(3 * (1 + 2 * 0.01**2 / 0.02**2) ** 2, rel=0.3)


def test_rounds_that_differ_by_more_than_processes_may_widen_the_interval() -> None:
    apart, alike = compare_rounds([[0.0, 0.0], [0.1, 0.1], [0.2, 0.2]]), compare_rounds([[0.1, 0.1]] * 3)
    assert apart.median == pytest.approx(alike.median) and apart.low < 1 < alike.low
    assert apart.verdict == "inconclusive" and apart.needed is not None and apart.needed > 3
    error, freedom = paired.standard_error([np.array([v, v]) for v in (0.0, 0.1, 0.2)], 0.01)
    assert (error, freedom) == (pytest.approx(0.1 / math.sqrt(3)), 2), "the rounds' own deviation, and Student's 2"


def test_rounds_without_scatter_within_say_nothing() -> None:
    assert compare_rounds([]).verdict == "inconclusive"
    single = compare_rounds([[0.1], [0.1], [0.1]])
    assert single.verdict == "inconclusive" and single.high == math.inf and single.p_value == 1.0


@given(st.lists(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=6), min_size=1, max_size=5))
def test_swapping_the_arms_swaps_the_rounds_verdict(logs: list[list[float]]) -> None:
    one, other = compare_rounds(logs), compare_rounds([[-log for log in each] for each in logs])
    swapped = {"faster": "slower", "slower": "faster", "inconclusive": "inconclusive"}
    assert other.median == pytest.approx(1 / one.median) and one.low <= one.median <= one.high
    if one.verdict in swapped and other.verdict in swapped:
        assert other.verdict == swapped[one.verdict]


def test_planned_rounds_find_their_effect() -> None:
    """2 % with quiet blocks, whose two rounds have an error of 1 %: 2 ((1.96 + 1.28) 0.01 / 0.02)^2 = 5.3."""
    assert paired.rounds_for(0.02, 0.01, 2) == 6
    assert paired.rounds_for(0.3, 0.02, 2) == POLICY.fewest_rounds


def test_levels_spend_the_error_once() -> None:
    """O'Brien-Fleming type at half and at all: 0.0056 and the rest (Lan and DeMets 1983)."""
    assert spent(0.5) == pytest.approx(0.0056, abs=1e-4) and spent(1.0) == pytest.approx(0.05)
    assert sum(levels((0.5, 0.75, 1.0))) == pytest.approx(0.05)
    assert spent(0.0) == 0.0


def test_break_even() -> None:
    assert paired.break_even(60.0, 100e6, 90e6) == pytest.approx(6000)
    assert paired.break_even(60.0, 90e6, 100e6) is None


def test_the_median_of_one_value_has_no_scatter_and_that_of_two_is_their_mean() -> None:
    """(a - b)^2 / 4 is the variance of a mean of two, estimated from them."""
    assert paired.median_variance(np.array([0.3])) == paired.median_variance(np.array([])) == 0.0
    assert paired.median_variance(np.array([0.1, 0.5])) == pytest.approx(0.04, rel=0.1)
    few = compare_rounds([[0.3, 0.31], [0.3], [0.3, 0.29]])
    assert few.verdict == "faster" and few.num == 3


def test_one_value_has_no_scatter() -> None:
    assert paired.scatter_of([0.3]) == paired.scatter_of([]) == 0.0
    assert paired.scatter_of([0.1, 0.3]) == pytest.approx(0.2 / 1.128), "the range of two, in deviations"


def test_planned_units_by_hand() -> None:
    """(1.960 + 1.282)^2 = 10.51 times the squared ratio of error to effect, of a median pi / 2 as many."""
    assert paired.rounds_for(0.02, 0.01, 3) == math.ceil(3 * 10.507 / 4) == 8
    assert paired.rounds_for(0.02, 0.001, 3) == POLICY.fewest_rounds
    assert paired.quadruples_for(0.02, 0.03) == math.ceil(10.507 * math.pi / 2 * 2.25) == 38
    assert paired.quadruples_for(0.02, 0.003) == paired.FEWEST
