"""Lines of a late rank: those that take longer there, those of rare steps, and what a sentence says of them."""

from __future__ import annotations

import pytest

from gobrrr.ledger.job.blame import LineTime, Work, blame, lines_of, told
from gobrrr.ledger.job.culprits import ALWAYS, AT_TIMES, IN_TURNS, Culprit
from gobrrr.ledger.model.ledger import Ledger, LineGroup, StepStats
from gobrrr.recording.model.facts import Facts, Span

MS = 1e6
INNER, OUTER, OTHER = Span("/w/data.py", 7), Span("/w/train.py", 40), Span("/w/train.py", 50)


def culprit(when: str = ALWAYS, phase: str = "other", surplus: float = 10.0, ranks: tuple[int, ...] = (1,)) -> Culprit:
    return Culprit(when=when, ranks=ranks, phase=phase, cost_ns=9 * MS, surplus_ns=surplus * MS)


def test_the_lines_with_most_time_are_handed_back_with_those_around_them() -> None:
    lines = (LineGroup((), 99 * MS), LineGroup((OUTER,), 1 * MS), LineGroup((INNER, OUTER), 5 * MS))
    found = lines_of(Ledger(step=StepStats(), lines=lines, facts=Facts(gc_span=OTHER)))
    assert found == (
        LineTime(INNER, 5 * MS, around=(OUTER,)), LineTime(OUTER, 1 * MS), LineTime(OTHER, 0.0, collects=True)
    )  # fmt: skip


def test_of_a_line_and_those_around_it_the_innermost_with_most_of_the_surplus_is_named() -> None:
    slow = (LineTime(INNER, 9 * MS, around=(OUTER,)), LineTime(OTHER, 2.5 * MS, around=(OUTER,)))
    others = (LineTime(INNER, 1 * MS, around=(OUTER,)), LineTime(OTHER, 1 * MS, around=(OUTER,)))
    assert blame(culprit(surplus=9.0), (0, 1), (others, slow), (Work(), Work())).where == INNER
    spread = (LineTime(INNER, 6 * MS, around=(OUTER,)), LineTime(OTHER, 6 * MS, around=(OUTER,)))
    assert blame(culprit(surplus=11.0), (0, 1), (others, spread), (Work(), Work())).where == OUTER, (
        "neither has nearly all"
    )
    assert blame(culprit(surplus=30.0), (0, 1), (others, spread), (Work(), Work())).where is None, (
        "less than half of it"
    )


def test_what_recurs_within_a_line_counts_once() -> None:
    again = (LineTime(INNER, 6 * MS, around=(INNER, OUTER)),)
    assert blame(culprit(surplus=13.0), (0, 1), ((), again), (Work(), Work())).where is None


def test_collections_by_hand_are_named_where_they_are_called() -> None:
    lines = ((), (LineTime(INNER, 9 * MS), LineTime(OTHER, 0.0, collects=True)))
    assert blame(culprit(AT_TIMES, "gc"), (0, 1), lines, (Work(), Work())).where == OTHER


def test_rare_lines_weigh_by_what_usual_steps_lack() -> None:
    lines = ((), (LineTime(INNER, 10 * MS, 0.65), LineTime(OTHER, 5 * MS, 0.1), LineTime(OUTER, 50 * MS, 0.9)))
    assert blame(culprit(AT_TIMES), (0, 1), lines, (Work(), Work())).where == OTHER


@pytest.mark.parametrize(("flops", "why"), [((1e9, 1.05e9), "take longer"), ((1e9, 1.2e9), "1.2 times the FLOPs")])
def test_more_work_is_told_by_flops(flops: tuple[float, float], why: str) -> None:
    assert why in blame(culprit(), (0, 1), ((), ()), [Work(each) for each in flops]).why


def test_a_sentence_names_four_ranks_and_counts_the_others() -> None:
    several = told(culprit(ranks=tuple(range(6))), 30 * MS)
    assert several.startswith("Straggler: ranks 0, 1, 2, 3 and 2 more work 10.0 ms longer in each step")
    assert told(culprit(IN_TURNS), 30 * MS).startswith("Uneven steps: in 100.0 % of steps one rank or another works")


def test_other_threads_are_told_where_they_work_for_most_of_the_surplus() -> None:
    def why(ms: float) -> str:
        return blame(culprit(), (0, 1), ((), ()), (Work(1e9, 2 * MS), Work(1e9, ms * MS))).why

    assert why(11) == "its other threads work 9.00 ms longer in each step: they take the interpreter or a core"
    assert "take longer: another core" in why(6)
    longer = ((), (LineTime(INNER, 9 * MS),))
    assert blame(culprit(), (0, 1), longer, (Work(), Work(0, 9 * MS))).where is None, "any line takes longer then"
