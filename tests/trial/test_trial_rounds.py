"""Rounds of fresh processes on a fake clock: how many there are, what they may cost, and what they conclude where every
start is a little faster or slower than the next."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.statistics.rounds import Rounds, per_round
from tests.support.trial_clock import DRAWS, MACHINES, NoisyMachine, arms_trial, started_once

QUIET = {"noise": 0.0, "burst": 0.0, "burst_share": 0.0}


def verdicts(speedup: float, num: int, machine: dict[str, float], **fields) -> Counter[str]:
    trials = (arms_trial(NoisyMachine(seed, **machine), speedup, seed, **fields) for seed in range(num))
    return Counter(found.result().verdict for found in trials)


def wrong(found: Counter[str]) -> float:
    return (found["faster"] + found["slower"]) / found.total()


@pytest.mark.parametrize("machine", MACHINES)
def test_identical_arms_are_told_apart_in_at_most_5_percent_whatever_their_starts(machine: str) -> None:
    """Each process is off by 1 % of a step."""
    found = [verdicts(1.0, 40, MACHINES[machine], bias=0.01, draw=draw) for draw in DRAWS.values()]
    assert wrong(sum(found, Counter())) <= 0.05


@pytest.mark.parametrize("bias", [0.02, 0.15])
def test_starts_that_differ_by_more_than_is_taken_for_granted_are_seen_to_do_so(bias: float) -> None:
    """A small convolutional net's processes differ by 14 % (benchmarks/process_bias.py)."""
    assert wrong(verdicts(1.0, 100, {}, bias=bias)) <= 0.08


def test_arms_that_are_started_once_are_told_apart_in_half_of_the_trials() -> None:
    """What the rounds are there against; and that these machines would show it."""
    found = Counter(started_once(NoisyMachine(seed, burst=0.0), seed, 0.01).verdict for seed in range(60))
    assert wrong(found) > 0.3


@pytest.mark.slow
def test_identical_arms_in_thousands_of_trials() -> None:
    for machine in MACHINES.values():
        for bias in (0.0, 0.0025, 0.005, 0.01):
            assert wrong(verdicts(1.0, 1000, machine, bias=bias)) <= 0.05, (machine, bias)


@pytest.mark.parametrize(("speedup", "power"), [(1.03, 0.8), (1.05, 0.95), (1.1, 0.99), (1.3, 1.0), (1 / 1.1, 0.99)])
def test_what_there_is_is_found_and_never_called_equivalent(speedup: float, power: float) -> None:
    found = verdicts(speedup, 60, {}, bias=0.01)
    assert found["faster" if speedup > 1 else "slower"] >= 60 * power, found
    assert found["equivalent"] == 0 and found["slower" if speedup > 1 else "faster"] == 0


def test_a_large_effect_is_settled_with_three_starts() -> None:
    found = [arms_trial(NoisyMachine(seed), 1.3, seed, bias=0.005) for seed in range(40)]
    assert {each.result().verdict for each in found} == {"faster"}
    assert sum(len(each.logs) == POLICY.fewest_rounds for each in found) >= 30


def test_every_round_but_the_first_begins_with_a_start_and_quadruples_stay_whole() -> None:
    clock = NoisyMachine(0, **QUIET)
    plan = Rounds((2e7, 2e7), seed=1, spent=6.0, clock=lambda: clock.now)
    fresh, arms = [], []
    while (block := plan.next()) is not None:
        assert plan.next() == block, "it stays asked for until it is fed"
        fresh.append(block.fresh)
        arms.append(block.arm)
        clock.now += 6.0 if block.fresh else 0.0
        plan.feed(clock.block(2e7, block.steps))
    begins = [4 * sum(map(len, plan.logs[:number])) for number in range(1, len(plan.logs))]
    assert [n for n, anew in enumerate(fresh) if anew] == begins
    assert {tuple(arms[i : i + 4]) for i in range(0, len(arms), 4)} == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_a_block_of_fewer_steps_counts_per_step() -> None:
    plan = Rounds((2e7, 2e7))
    while (block := plan.next()) is not None:
        plan.feed(2e7 * (2 if block.arm else block.steps), 2 if block.arm else None)
    assert plan.result().median == pytest.approx(1.0)


def test_a_round_has_more_quadruples_where_starting_costs_more_and_blocks_scatter_more() -> None:
    """sqrt(cost of a start / of a quadruple) x 1.25 x scatter / (sqrt(2) x 1 %), 4 at least: 6 s, 0.4 s, 2 %: 6.9."""
    assert per_round(6.0, 0.4, 0.02) == 7 and per_round(6.0, 0.4, 0.0) == 4
    assert per_round(24.0, 0.4, 0.02) == 14 and per_round(6.0, 0.4, 0.5) == POLICY.most_quadruples


def test_three_rounds_are_made_to_fit() -> None:
    """30 s for a round, 20 of them for its start: 10 s of blocks; where nothing is left they get half of the start, and
    where no second more may be taken the fewest that say anything."""
    assert per_round(20.0, 1.0, 0.1, seconds=90.0) == 10
    assert per_round(30.0, 1.0, 0.1, seconds=90.0) == 15
    assert per_round(30.0, 1.0, 0.1, seconds=90.0, overrun=1.0) == 2


@pytest.mark.parametrize("started", [1, 2, 3, 5])
def test_what_the_first_start_started_for_later_rounds_is_not_paid_again(started: int) -> None:
    """Starts of 40 s in 120, as of a device's program that takes so long to its first step: nobody may overrun them."""
    clock = NoisyMachine(0, **QUIET)
    clock.now += 40.0
    plan = Rounds((2e7, 1e7), seed=1, spent=40.0, seconds=120.0, overrun=1.0, clock=lambda: clock.now, started=started,
                  ahead_s=36.0)  # fmt: skip
    while (block := plan.next()) is not None:
        clock.now += (40.0 if len(plan.logs) > started else 4.0) if block.fresh else 0.0  # 4 to warm up
        plan.feed(clock.block(1e7 if block.arm else 2e7, block.steps))
    assert (len(plan.logs), plan.result().verdict) == {1: (2, "inconclusive")}.get(started, (3, "faster"))
    assert clock.now <= 120.0


@pytest.mark.parametrize(("started", "seconds"), [(1, 260.0), (2, 190.0), (3, 110.0)])
def test_rounds_whose_blocks_are_long_are_made_to_fit_beside_the_starts_they_pay(started: int, seconds: float) -> None:
    """Quadruples of 1.5 s that scatter, starts of 80: as many of them as leave room for a third round."""
    clock = NoisyMachine(0, noise=0.1, burst=0.0)
    clock.now += 80.0
    plan = Rounds((2.5e8, 2e8), seed=1, spent=80.0, seconds=seconds, overrun=1.0, clock=lambda: clock.now,
                  started=started, ahead_s=80.0)  # fmt: skip
    while (block := plan.next()) is not None:
        clock.now += 80.0 if block.fresh and len(plan.logs) > started else 0.0
        plan.feed(clock.block(2e8 if block.arm else 2.5e8, block.steps))
    assert len(plan.logs) >= POLICY.fewest_rounds and clock.now <= seconds


def test_what_would_settle_it_counts_the_starts_that_are_still_to_be_paid() -> None:
    clock = NoisyMachine(0, noise=0.3, burst=0.0)
    clock.now += 60.0
    plan = Rounds((2e7, 2e7), seed=1, spent=60.0, seconds=100.0, overrun=1.0, clock=lambda: clock.now, started=3,
                  ahead_s=60.0, most=3)  # fmt: skip
    while (block := plan.next()) is not None:
        plan.feed(clock.block(2e7, block.steps))
    needed = plan.result().needed
    assert needed is not None and needed > 5
    assert float(plan.wants().split("about ")[1].split()[0]) >= (needed - 3) * 1.0


@pytest.mark.parametrize("start_s", [2.0, 6.0, 15.0])
def test_starts_count_against_the_time(start_s: float) -> None:
    for seed in range(10):
        machine = NoisyMachine(seed, noise=0.1)
        found = arms_trial(machine, 1.0, seed, starts_s=(start_s,), seconds=90)
        assert len(found.logs) >= POLICY.fewest_rounds and machine.now <= 1.1 * 90


def test_too_little_time_for_three_starts_is_exceeded_threefold_at_most() -> None:
    machine = NoisyMachine(0)
    found = arms_trial(machine, 1.3, 0, starts_s=(40.0,), seconds=60)
    assert found.result().verdict == "faster" and 120 < machine.now < 180


def test_where_three_starts_do_not_fit_in_it_says_so_and_what_would_do() -> None:
    """Two starts of 70 s in 60: the third would end after 210. It stops there, and does not start it."""
    machine = NoisyMachine(0, **QUIET)
    found = arms_trial(machine, 1.3, 0, starts_s=(70.0,), seconds=60)
    assert found.result().verdict == "inconclusive" and len(found.logs) == 2 and machine.now < 180
    assert "time for 2 of the 3 starts" in found.wants() and "3 would settle it, about" in found.wants()
    assert found.result().needed == POLICY.fewest_rounds
    at_once = arms_trial(NoisyMachine(0, **QUIET), 1.3, 0, starts_s=(100.0,), seconds=60)
    assert at_once.result().verdict == "inconclusive" and len(at_once.logs) == 1


def test_a_compiled_arms_later_starts_are_planned_at_what_the_last_one_took() -> None:
    """The first compiles for a minute, the others find its cache; three at the first one's price would not fit."""
    machine = NoisyMachine(0)
    found = arms_trial(machine, 1.3, 0, starts_s=(60.0, 10.0), seconds=50)
    assert found.result().verdict == "faster" and machine.now < 3 * 50


def test_what_stays_open_says_how_many_starts_would_settle_it() -> None:
    found = arms_trial(NoisyMachine(3, noise=0.1), 1.02, 3)
    assert found.result().verdict == "inconclusive" and found.result().needed > len(found.logs)
    assert f"{found.result().needed} starts of each arm would settle it, about" in found.wants()
    settled = arms_trial(NoisyMachine(3), 1.3, 3)
    assert settled.wants() == ""


def test_a_comparison_that_is_cut_short_is_inconclusive() -> None:
    plan = Rounds((2e7, 2e7))
    assert plan.result().verdict == "inconclusive" and plan.result().low == 0.0 and plan.result().high == math.inf
    for _ in range(9):
        plan.next()
        plan.feed(1e8)
    assert plan.result().verdict == "inconclusive" and plan.result().needed


def test_processes_of_one_block_are_paired_two_quadruples_a_round() -> None:
    """Without memory for two arms a quadruple is four starts."""
    clock = NoisyMachine(0, **QUIET)
    plan = Rounds((2e7, 2e7), apart=True, clock=lambda: clock.now)
    while (block := plan.next()) is not None:
        clock.now += 3.0
        plan.feed(clock.block(2e7, block.steps))
    assert {len(each) for each in plan.logs} == {2} and len(plan.logs) >= POLICY.fewest_rounds


def test_rounds_that_the_time_cuts_short_still_get_their_last_look() -> None:
    now = [0.0]
    rounds = Rounds((2e7, 1e7), seed=1, seconds=40.0, spent=0.0, overrun=1.0, effect=0.001, clock=lambda: now[0])
    stretch = 0.0
    while (block := rounds.next()) is not None:
        if block.fresh:
            stretch += 6.0  # starts grow slower: fewer rounds fit than were planned
            now[0] += stretch
        ns = 2e7 * block.steps / (1.02 if block.arm else 1.0)
        now[0] += ns / 1e9
        rounds.feed(ns)
    found = rounds.result()
    assert found.num < rounds.planned and found.num >= 3 and found.verdict == "faster"


@pytest.mark.parametrize(("spent", "num"), [({}, 3), ({"spent": 0.0}, 3), ({"spent": 1.0}, 2)])
def test_what_the_first_start_took_is_of_the_seconds(spent: dict[str, float], num: int) -> None:
    """Rounds of 3 s: two and another one are 9 of 9.5, were it not for a second before."""
    now = [100.0]
    trial = Rounds((1e7, 1e7), seconds=9.5, overrun=1.0, apart=True, clock=lambda: now[0], **spent)
    blocks = 0
    while (block := trial.next()) is not None:
        now[0] += 3.0 / (4 * POLICY.fewest_quadruples)
        trial.feed(1e7 * block.steps * (1.0 + 1e-4 * (blocks % 3)))
        blocks += 1
    assert blocks == num * 4 * POLICY.fewest_quadruples
