"""Who is waited for, of tables that are made here: what curing it brings is known, for it was put in."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ledger.job.blame import LineTime, Work, blame, told
from gobrrr.ledger.job.culprits import ALWAYS, AT_TIMES, IN_TURNS, Culprit, Floats, shared
from gobrrr.ledger.job.own_steps import FIELDS, OwnSteps
from gobrrr.recording.model.facts import Span

MS = 1e6
STEPS = 200
PHASES = {"data wait": 1.0, "forward": 4.0, "backward": 6.0, "optimizer": 1.0, "other": 1.0}
COMMUNICATION = 2.0


def job(num_ranks: int, *more: tuple[int, str, Floats | float], noise: float = 0.02, seed: int = 0) -> list[OwnSteps]:
    """Ranks with the same work and a little noise; `more` adds ms to (rank, phase), in every step or step by step. Each
    step takes as long as the latest rank, and the communication behind it."""
    drawn = np.random.default_rng(seed)
    table = np.zeros((STEPS, num_ranks, len(FIELDS)))
    for phase, ms in PHASES.items():
        table[:, :, FIELDS.index(phase)] = ms * MS * (1 + noise * drawn.standard_normal((STEPS, num_ranks)))
    for rank, phase, ms in more:
        table[:, rank, FIELDS.index(phase)] += np.asarray(ms) * MS
        if phase == "gc":
            table[:, rank, FIELDS.index("other")] += np.asarray(ms) * MS
    own = table[:, :, : len(PHASES)].sum(axis=2)
    table[:, :, FIELDS.index("wall")] = (own.max(axis=1) + COMMUNICATION * MS)[:, None]
    return [OwnSteps(table[:, rank].astype(np.float32).tobytes()) for rank in range(num_ranks)]


def found(ranks: list[OwnSteps]) -> tuple[Culprit, ...]:
    seen = shared(ranks)
    assert seen is not None
    return seen[1]


def step_ms(ranks: list[OwnSteps]) -> float:
    return float(np.mean([ranks[0].table()[:, FIELDS.index("wall")]])) / MS


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
def test_healthy_ranks_have_no_culprit_and_the_parts_add_up(num_ranks: int) -> None:
    both = shared(job(num_ranks))
    assert both is not None
    seen, culprits = both
    assert culprits == () and seen.steps == STEPS
    assert seen.own_ns + seen.imbalance_ns + seen.communication_ns == pytest.approx(seen.step_ns)
    assert seen.communication_ns == pytest.approx(COMMUNICATION * MS, rel=0.1)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("phase", ["data wait", "forward", "other"])
def test_a_rank_that_is_always_late_costs_what_curing_it_brings(num_ranks: int, phase: str) -> None:
    ill = job(num_ranks, (1, phase, 3.0))
    (one,) = found(ill)
    assert (one.when, one.ranks, one.phase) == (ALWAYS, (1,), phase)
    assert one.cost_ns / MS == pytest.approx(step_ms(ill) - step_ms(job(num_ranks)), rel=0.1)
    assert one.surplus_ns / MS == pytest.approx(3.0, rel=0.1)


def test_two_late_ranks_of_four_are_cured_together() -> None:
    ill = job(4, (0, "forward", 3.0), (2, "forward", 3.2))
    (one,) = found(ill)
    assert (one.when, one.ranks) == (ALWAYS, (0, 2))
    assert one.cost_ns / MS == pytest.approx(step_ms(ill) - step_ms(job(4)), rel=0.1)


def test_what_one_rank_does_now_and_then_is_told_with_its_period() -> None:
    at = np.arange(STEPS) % 20 == 7
    ill = job(4, (0, "other", 60.0 * at))
    (one,) = found(ill)
    assert (one.when, one.ranks, one.phase, one.every) == (AT_TIMES, (0,), "other", 20)
    assert one.share_of_steps == pytest.approx(0.05) and one.surplus_ns / MS == pytest.approx(60, rel=0.05)
    assert one.cost_ns / MS == pytest.approx(step_ms(ill) - step_ms(job(4)), rel=0.1)


def test_ranks_that_are_late_by_chance_take_turns() -> None:
    drawn = np.random.default_rng(1)
    ill = job(4, *((rank, "data wait", 40.0 * (drawn.random(STEPS) < 0.04)) for rank in range(4)))
    (one,) = found(ill)
    assert (one.when, one.phase, one.every) == (IN_TURNS, "data wait", None) and set(one.ranks) == {0, 1, 2, 3}
    assert one.cost_ns / MS == pytest.approx(step_ms(ill) - step_ms(job(4)), rel=0.1)


def test_batches_of_any_length_take_turns_too() -> None:
    drawn = np.random.default_rng(2)
    ill = job(2, *((rank, "forward", 20.0 * drawn.random(STEPS)) for rank in range(2)))
    (one,) = found(ill)
    assert (one.when, one.phase) == (IN_TURNS, "forward")
    own = np.stack([rank.table()[:, : len(PHASES)].sum(axis=1) for rank in ill], axis=1)
    assert one.cost_ns == pytest.approx(float((own.max(axis=1) - own.mean(axis=1)).mean()), rel=0.15), "shared evenly"


def test_a_rank_with_more_work_of_any_length_is_told_once() -> None:
    """Lengths up to four times as long on one rank: some steps stand out, the others are longer too."""
    lengths = np.random.default_rng(3).lognormal(0.0, 0.9, 200).clip(0.2, 8.0) * 12
    (one,) = found(job(2, (1, "forward", lengths)))
    assert (one.when, one.ranks, one.phase) == (ALWAYS, (1,), "forward")
    assert one.cost_ns / MS == pytest.approx(lengths.mean(), rel=0.15)


def test_collections_are_named_where_they_make_the_surplus() -> None:
    drawn = np.random.default_rng(3)
    ill = job(3, *((rank, "gc", 30.0 * (drawn.random(STEPS) < 0.05)) for rank in range(3)))
    (one,) = found(ill)
    assert (one.when, one.phase) == (IN_TURNS, "gc")


def test_what_all_ranks_do_at_once_nobody_waits_for() -> None:
    at = np.arange(STEPS) % 10 == 0
    assert found(job(3, *((rank, "other", 50.0 * at) for rank in range(3)))) == ()


def test_both_kinds_are_told_the_dearest_first() -> None:
    at = np.arange(STEPS) % 10 == 0
    kinds = [(one.when, one.ranks) for one in found(job(4, (1, "forward", 2.0), (3, "other", 80.0 * at)))]
    assert kinds == [(AT_TIMES, (3,)), (ALWAYS, (1,))]


def test_ranks_that_are_late_by_more_and_more_are_told_together() -> None:
    ill = job(8, *((rank, "forward", 0.6 * rank) for rank in range(8)))
    one, *_ = found(ill)
    assert one.when == ALWAYS and one.ranks[-1] == 7 and len(one.ranks) <= 4
    assert one.cost_ns / MS == pytest.approx(0.6 * 3.5, rel=0.35)


def test_two_ranks_that_are_late_in_the_same_steps_do_not_hide_each_other() -> None:
    at = np.arange(STEPS) % 20 == 7
    (one,) = found(job(8, (0, "other", 60.0 * at), (4, "other", 58.0 * at)))
    assert one.cost_ns / MS == pytest.approx(3.0, rel=0.1) and set(one.ranks) <= {0, 4}


def test_one_step_of_ten_seconds_hides_no_straggler_and_is_told_by_itself() -> None:
    once = np.where(np.arange(STEPS) == 120, 10_000.0, 0.0)
    both = shared(job(3, (1, "other", once), (2, "forward", 2.0)))
    assert both is not None
    seen, (one,) = both
    assert (one.when, one.ranks) == (ALWAYS, (2,))
    assert [number for number, _ in seen.left_out] == [120] and seen.left_out[0][1] / MS == pytest.approx(
        10_015, rel=0.01
    )
    assert seen.step_ns / MS == pytest.approx(step_ms(job(3)) + 2.0, rel=0.05)


def test_two_ranks_that_evaluate_at_their_own_pace_are_told() -> None:
    steps = np.arange(STEPS)
    (one, *_) = found(job(4, (0, "forward", 60.0 * (steps % 20 == 3)), (1, "forward", 60.0 * (steps % 30 == 11))))
    assert (one.when, one.ranks, one.phase) == (IN_TURNS, (0, 1), "forward")


def test_what_a_rank_does_in_half_of_its_steps_is_not_always() -> None:
    steps = np.arange(STEPS)
    kinds = found(job(2, (0, "other", 5.0 * (steps % 2)), (1, "other", 5.0 * (steps % 2 == 0))))
    assert [(one.when, one.ranks) for one in kinds] == [(IN_TURNS, (0, 1))]


def test_the_period_counts_steps_that_were_not_watched() -> None:
    at = np.arange(STEPS) % 20 == 7
    ranks = job(4, (0, "other", 60.0 * at))
    table = ranks[1].table().copy()
    table[[30, 31, 52, 75, 99, 130, 131, 132, 151, 172]] = np.nan
    (one,) = found([ranks[0], OwnSteps(table.tobytes()), *ranks[2:]])
    assert one.every == 20


@pytest.mark.parametrize(("ms", "told"), [(0.4, False), (1.2, True)])
def test_below_a_twentieth_of_the_step_nobody_is_late(ms: float, told: bool) -> None:
    assert bool(found(job(4, (1, "forward", ms), noise=0.001))) == told


@pytest.mark.parametrize(("num", "told"), [(2, False), (4, True)])
def test_a_step_or_two_are_chance(num: int, told: bool) -> None:
    at = np.isin(np.arange(STEPS), [20, 70, 110, 160][:num])
    assert bool(found(job(4, (1, "other", 120.0 * at)))) == told


def test_long_first_steps_are_of_the_start() -> None:
    first = np.where(np.arange(STEPS) < 10, 100.0, 0.0)
    both = shared(job(2, (0, "other", first), (1, "other", first)))
    assert both is not None and both[0].steps == STEPS - 10 and both[1] == ()


def test_of_two_ranks_the_shorter_one_is_the_usual_one() -> None:
    both = shared(job(2, (1, "forward", 5.0)))
    assert both is not None and both[0].own_ns / MS == pytest.approx(sum(PHASES.values()), rel=0.02)


def test_rare_long_computing_of_all_ranks_is_the_machines() -> None:
    drawn = np.random.default_rng(5)
    assert found(job(4, *((rank, "forward", 40.0 * (drawn.random(STEPS) < 0.03)) for rank in range(4)))) == ()


def test_steps_that_a_rank_did_not_watch_count_for_none() -> None:
    ranks = job(2, (1, "other", 3.0))
    table = ranks[0].table().copy()
    table[50:100] = np.nan
    seen = shared([OwnSteps(table.tobytes()), ranks[1]])
    assert seen is not None and seen[0].steps == STEPS - 50
    table[5:] = np.nan
    assert shared([OwnSteps(table.tobytes()), ranks[1]]) is None, "too few"
    assert shared(ranks[:1]) is None, "nobody waits for nobody"


HERE, THERE, SHARED_LINE = Span("/w/train.py", 14), Span("/w/train.py", 30), Span("/w/net.py", 7)


def blamed(
    culprit: Culprit, slow: list[LineTime], other: list[LineTime], flops: tuple[float, float] = (1, 1)
) -> Culprit:
    return blame(culprit, (4, 7), (other, slow), [Work(each) for each in flops])


ALWAYS_LATE = Culprit(when=ALWAYS, ranks=(1,), phase="other", cost_ns=9 * MS, surplus_ns=10 * MS)


def test_the_line_with_most_of_the_surplus_is_named_though_others_wait_longer_elsewhere() -> None:
    slow = [LineTime(HERE, 10 * MS), LineTime(THERE, 2 * MS), LineTime(SHARED_LINE, 5 * MS)]
    other = [LineTime(THERE, 12 * MS), LineTime(SHARED_LINE, 5 * MS)]
    one = blamed(ALWAYS_LATE, slow, other)
    assert (one.ranks, one.where, one.why) == ((7,), HERE, "")
    assert told(one, 30 * MS) == (
        "Straggler: rank 7 works 10.0 ms longer in each step at train.py:14; that costs 9.00 ms of each 30.0 ms step."
    )


def test_without_a_line_it_is_more_work_or_the_same_more_slowly() -> None:
    slow = [LineTime(SHARED_LINE, 8 * MS), LineTime(HERE, 8 * MS), LineTime(THERE, 8 * MS)]
    other = [LineTime(SHARED_LINE, 4 * MS), LineTime(HERE, 4 * MS), LineTime(THERE, 4 * MS)]
    more = blamed(ALWAYS_LATE, slow, other, (1e9, 2e9))
    assert more.where is None and "2 times the FLOPs" in more.why
    assert "take longer" in blamed(ALWAYS_LATE, slow, other, (1e9, 1e9)).why
    assert blamed(ALWAYS_LATE, slow, other, (0, 0)).why == ""
    assert "in the program's own code" in told(more, 30 * MS)


def test_single_steps_are_blamed_on_a_line_that_usual_ones_lack() -> None:
    rare = Culprit(when=AT_TIMES, ranks=(1,), phase="other", cost_ns=9 * MS, surplus_ns=90 * MS, every=10.0,
                   share_of_steps=0.1)  # fmt: skip
    one = blamed(rare, [LineTime(SHARED_LINE, 20 * MS, 1.0), LineTime(HERE, 9 * MS, 0.1)], [])
    assert one.where == HERE
    assert "rank 7 works 90.0 ms longer every 10 steps at train.py:14" in told(one, 30 * MS)
    assert blamed(rare, [LineTime(SHARED_LINE, 20 * MS, 1.0)], []).where is None


def test_of_turns_the_line_in_which_all_meet_is_not_the_cause() -> None:
    reads, waits = Span("t.py", 5, "main"), Span("t.py", 9, "main")
    lines = [LineTime(reads, 4 * MS, 0.1), LineTime(waits, 8 * MS, 0.1, meets=True)]
    turns = Culprit(when=IN_TURNS, ranks=(0, 1), phase="other", cost_ns=9 * MS, surplus_ns=90 * MS)
    assert blame(turns, (0, 1), [lines, lines], [Work(), Work()]).where == reads
    rare = replace(turns, when=AT_TIMES, ranks=(1,))
    assert blame(rare, (0, 1), [lines, lines], [Work(), Work()]).where == waits


def test_ranks_that_were_looked_at_from_other_steps_on_are_held_against_each_other_in_the_same_steps() -> None:
    spikes = np.zeros(STEPS)
    spikes[7::10] = 40.0
    whole = job(2, (1, "other", spikes))
    table = whole[1].table()
    assert shared([OwnSteps(whole[0].table()[3:].tobytes(), 3), OwnSteps(table[5:].tobytes(), 5)]) == shared(
        [OwnSteps(each.table()[5:].tobytes(), 5) for each in whole]
    )
