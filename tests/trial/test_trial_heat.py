"""Anytime intervals and heats: errors that hold whenever one looks, blocks for whoever may still win."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Heat
from gobrrr.trial.statistics import anytime

A, B, C = ("a",), ("b",), ("c",)


@pytest.mark.parametrize(("arms", "num"), [
    (2, 200), (5, 100), pytest.param(2, 600, marks=pytest.mark.slow), pytest.param(5, 300, marks=pytest.mark.slow),
])  # fmt: skip
def test_looking_all_the_time_errs_no_more_often_than_promised(arms: int, num: int) -> None:
    stream, wrong = random.Random(3), 0
    for _ in range(num):
        sweeps: list[dict[int, float]] = []
        for _ in range(30):
            machine = stream.gauss(0, 0.5)
            sweeps.append({arm: machine + stream.gauss(0, 0.05) for arm in range(arms)})
            found = anytime.interval(sweeps, 0, 1, 0.2, process_sd=1e-9)
            if found.low > 0 or found.high < 0:
                wrong += 1
                break
    assert wrong / num < 0.1 and (wrong or num < 300)  # half of the error is the processes'


def test_what_two_processes_are_off_by_is_never_averaged_away() -> None:
    found = anytime.interval([{"slow": 0.02, "fast": 0.0}] * 200, "slow", "fast")
    assert found.low < 0 < found.high and found.high - found.mean > 0.03


@pytest.mark.parametrize("num", [0, 1, 2])
def test_so_few_values_say_nothing(num: int) -> None:
    found = anytime.interval([{"slow": 0.5, "fast": 0.0}] * num, "slow", "fast")
    assert found.num == num and math.isinf(found.low) and math.isinf(found.high)


def test_the_interval_is_where_the_bayes_factor_reaches_the_level() -> None:
    num, level = 7, 0.03
    t2 = num * anytime.half_width(1.0, num, num - 1, level) ** 2
    spread, freedom = 1 + num * anytime.PRIOR, num - 1
    factor = ((1 + t2 / freedom) / (1 + t2 / (freedom * spread))) ** (num / 2) / math.sqrt(spread)
    assert factor == pytest.approx(1 / level)


def test_noise_is_that_of_all_arms_as_in_an_analysis_of_variance() -> None:
    """Two ways, four sweeps of three arms: residuals are what is left of each value after its row's and column's mean;
    the difference of two columns' means has the variance 2 / 4 of one value's."""
    stream = random.Random(1)
    table = np.array([[stream.gauss(arm, 0.3) + sweep for arm in range(3)] for sweep in range(4)])
    left = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    variance = (left**2).sum() / (3 * 2)
    found = anytime.interval([dict(enumerate(row)) for row in table], 2, 0, process_sd=0.0)
    assert found.mean == pytest.approx((table[:, 2] - table[:, 0]).mean())
    deviation = max(math.sqrt(2 * variance), (table[:, 2] - table[:, 0]).std(ddof=1))
    assert found.error == pytest.approx(deviation / math.sqrt(4))
    half = anytime.half_width(deviation, 4, 6, anytime.POOLED * anytime.LEVEL / 2)
    assert (found.high - found.low) / 2 == pytest.approx(half)


def test_an_arm_that_is_noisier_than_the_others_has_its_own_noise() -> None:
    stream = random.Random(5)
    sweeps = [{arm: stream.gauss(0, 0.1 if arm == 4 else 0.01) for arm in range(5)} for _ in range(6)]
    steady, noisy = (anytime.interval(sweeps, 0, arm) for arm in (1, 4))
    assert noisy.high - noisy.low > 1.3 * (steady.high - steady.low)


def test_an_arm_that_is_noisier_than_the_others_does_not_hide_them() -> None:
    stream = random.Random(5)
    steady = [{"slow": 0.1 + stream.gauss(0, 0.01), "fast": stream.gauss(0, 0.01)} for _ in range(8)]
    beside = [{**sweep, "noisy": stream.gauss(0, 1.0)} for sweep in steady]
    alone, found = (anytime.interval(sweeps, "slow", "fast") for sweeps in (steady, beside))
    assert found.low > 0 and found.error == pytest.approx(alone.error) and found.mean == pytest.approx(alone.mean)
    assert found.high - found.low < 1.2 * (alone.high - alone.low)


def test_two_arms_beside_a_noisy_one_have_the_interval_of_their_own_differences() -> None:
    stream = random.Random(5)
    sweeps = [{"slow": 0.1 + stream.gauss(0, 0.01), "fast": stream.gauss(0, 0.01), "noisy": stream.gauss(0, 1.0)}
              for _ in range(8)]  # fmt: skip
    logs = np.array([sweep["slow"] - sweep["fast"] for sweep in sweeps])
    found = anytime.interval(sweeps, "slow", "fast", process_sd=0.0)
    half = anytime.half_width(logs.std(ddof=1), 8, 7, (1 - anytime.POOLED) * anytime.LEVEL / 2)
    assert (found.high - found.low) / 2 == pytest.approx(half) and found.mean == pytest.approx(logs.mean())


@pytest.mark.parametrize("num", [100, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noisy", [0, 1, 4])
def test_it_errs_no_more_often_where_one_arm_is_noisier(noisy: int, num: int) -> None:
    """The reference, the contender, or one that neither is."""
    stream, wrong = random.Random(7), 0
    for _ in range(num):
        sweeps: list[dict[int, float]] = []
        for _ in range(24):
            sweeps.append({arm: stream.gauss(0, 0.25 if arm == noisy else 0.05) for arm in range(5)})
            found = anytime.interval(sweeps, 0, 1, 0.2, process_sd=1e-9)
            if found.low > 0 or found.high < 0:
                wrong += 1
                break
    assert wrong / num < 0.1


def test_arms_that_left_still_tell_of_the_noise() -> None:
    """Two arms alone, and the same two beside a third one that was in the first two sweeps only: the same difference
    is known better."""
    stream = random.Random(2)
    two = [{"slow": 1 + stream.gauss(0, 0.1), "fast": stream.gauss(0, 0.1)} for _ in range(3)]
    three = [{**sweep, "gone": 0.5 + stream.gauss(0, 0.1)} if n < 2 else sweep for n, sweep in enumerate(two)]
    alone, beside = (anytime.interval(sweeps, "slow", "fast") for sweeps in (two, three))
    assert alone.num == beside.num == 3 and beside.high - beside.low < 0.7 * (alone.high - alone.low)


def run(heat: Heat, gains: dict, sweeps: int = 100, noise: float = 0.02, drift: float = 0.0) -> int:
    """Sweeps until it is over; steps of 100, a machine that grows slower by `drift` with every block."""
    stream, now, made = random.Random(1), 0, 0
    while (order := heat.order()) and made < sweeps:
        times: dict = {}
        for arm in (*order, *reversed(order)):
            now += 1
            slow = math.exp(drift * now + stream.gauss(0, noise))
            times.setdefault(arm, []).append(100 / gains.get(arm, 1.0) * slow)
        heat.feed(times)
        made += 1
    return made


def test_winners_and_losers_are_settled_and_their_blocks_go_to_the_open_ones() -> None:
    heat = Heat((), [A, B, C])
    run(heat, {A: 1.5, B: 0.6, C: 1.03})
    assert heat.verdict(A) == "faster" and heat.verdict(B) == "slower"
    assert heat.standing(A).num <= 6 < heat.standing(C).num
    assert heat.order() == []


def test_drift_falls_on_all_arms_alike() -> None:
    heat = Heat((), [A, B, C], seed=5)
    run(heat, {}, noise=1e-4, drift=0.05)
    assert all(abs(heat.standing(arm).mean) < 0.002 for arm in (A, B, C))


def test_who_hardly_can_win_is_given_up_and_every_heat_ends() -> None:
    heat = Heat((), [A, B])
    assert run(heat, {A: 1.0, B: 0.97}) <= POLICY.sweeps[-1]


def test_a_brief_heat_leaves_open_what_is_not_shown_by_then() -> None:
    heat = Heat((), [A], most=12)
    assert run(heat, {A: 1.03}, noise=0.1) == 12 and heat.verdict(A) == "inconclusive"


def test_arms_are_held_against_each_other_by_the_sweeps_of_both() -> None:
    heat = Heat((), [A, B])
    heat.feed({(): [100, 100], A: [50, 50], B: [25, 25]})
    heat.feed({(): [100, 100], A: [50, 50]})
    assert heat.standing(B, A).mean == pytest.approx(math.log(2)) and heat.standing(B, A).num == 1


def test_an_arm_that_died_gets_no_more_blocks() -> None:
    heat = Heat((), [A, B])
    heat.leave(A)
    assert set(heat.order()) == {(), B}
