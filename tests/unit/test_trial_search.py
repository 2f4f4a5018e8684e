"""The search: what is tried next, what is kept, when it ends. Trials are played from a table of gains."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.rules.model import Saving
from gobrrr.trial.search import Candidate, Plan, Search

MS = 1e6


def candidate(name: str, expected: float = 10.0, ceiling: float = 20.0, **fields) -> Candidate:
    return Candidate(name, Saving(0.0, expected * MS, ceiling * MS), **fields)


def play(search: Search, gains: dict[str, float], guards: dict[str, str] | None = None) -> list[Plan]:
    """Answer every trial by the gains of its stacks, in ms of a step of 100; returns the plans in their order."""
    plans = []
    while (plan := search.next()) is not None:
        plans.append(plan)
        before, after = (100 - sum(gains.get(name, 0.0) for name in stack) for stack in (plan.baseline, plan.candidate))
        ratio = before / after
        verdict = "faster" if ratio > 1.01 else "slower" if ratio < 0.99 else "equivalent"
        search.feed(plan, verdict, (guards or {}).get(plan.remedy, "equivalent"), after * MS)
        assert len(plans) < 200
    return plans


def search(*candidates: Candidate, **fields) -> Search:
    return Search(candidates, 100 * MS, **fields)


def test_the_largest_expectation_comes_first_and_each_is_tried_on_what_is_kept() -> None:
    found = search(candidate("small", 5), candidate("large", 30), candidate("middling", 12))
    plans = play(found, {"large": 20, "small": 5})
    assert [plan.remedy for plan in plans if plan.purpose == "add"] == ["large", "middling", "small"]
    assert plans[2].baseline == ("large",) and plans[2].candidate == ("large", "small")
    assert found.kept == ["large", "small"]


def test_every_kept_one_is_left_out_once_then_all_meet_the_untouched_program() -> None:
    plans = play(search(candidate("a", 30), candidate("b", 20)), {"a": 10, "b": 10})
    assert [(plan.purpose, plan.remedy) for plan in plans[2:]] == [
        ("leave-one-out", "a"), ("leave-one-out", "b"), ("final", ""),
    ]  # fmt: skip
    assert plans[-1].baseline == () and plans[-1].candidate == ("a", "b")
    assert plans[2].baseline == ("b",) and plans[2].candidate == ("a", "b")


def test_what_a_later_one_has_made_useless_is_dropped_and_the_rest_is_looked_at_again() -> None:
    found = search(candidate("a", 30), candidate("b", 20), candidate("c", 10))
    plans = []
    while (plan := found.next()) is not None:
        plans.append(plan)
        useless = plan.purpose == "leave-one-out" and plan.remedy == "a"
        found.feed(plan, "equivalent" if useless else "faster", "exact", 80 * MS)
    assert found.kept == ["b", "c"]
    assert [plan.remedy for plan in plans if plan.purpose == "leave-one-out"] == ["a", "b", "c"]
    assert plans[-1].candidate == ("b", "c")


def test_nothing_kept_means_nothing_to_confirm() -> None:
    found = search(candidate("a"))
    assert [plan.purpose for plan in play(found, {})] == ["add"] and found.kept == []


@pytest.mark.parametrize("guard", ["changed", "unverified", "wrong"])
def test_a_guard_that_is_not_green_keeps_nothing(guard: str) -> None:
    found = search(candidate("a"))
    play(found, {"a": 50}, {"a": guard})
    assert found.kept == []


@pytest.mark.parametrize("verdict", ["slower", "equivalent", "inconclusive", "failed"])
def test_only_faster_is_kept(verdict: str) -> None:
    found = search(candidate("a"))
    plan = found.next()
    assert plan is not None
    found.feed(plan, verdict, "exact")
    assert found.kept == [] and found.next() is None


def test_what_the_ledger_does_not_allow_is_not_tried_unless_it_is_named() -> None:
    found = search(candidate("nothing", 0.1, 0.5), candidate("asked", 0.0, 0.0, named=True))
    plans = play(found, {})
    assert [plan.remedy for plan in plans] == ["asked"]
    assert "0.5 %" in found.skipped["nothing"]


def test_conflicts_with_what_is_kept_are_told_whichever_of_the_two_declares_them() -> None:
    found = search(candidate("a", 30), candidate("b", 20, conflicts=frozenset({"a"})))
    play(found, {"a": 10, "b": 10})
    assert found.kept == ["a"] and "a, which was kept" in found.skipped["b"]
    other = search(candidate("a", 30, conflicts=frozenset({"b"})), candidate("b", 20))
    play(other, {"a": 10, "b": 10})
    assert "a, which was kept" in other.skipped["b"]


def test_a_conflict_with_what_was_rejected_is_none() -> None:
    found = search(candidate("a", 30), candidate("b", 20, conflicts=frozenset({"a"})))
    play(found, {"b": 10})
    assert found.kept == ["b"]


def test_a_spent_budget_ends_the_additions_and_not_the_confirmation() -> None:
    found = search(candidate("a", 30), candidate("b", 20))
    plan = found.next()
    assert plan is not None
    found.feed(plan, "faster", "exact", 90 * MS)
    found.stop("the time is spent")
    last = found.next()
    assert last is not None and last.purpose == "final"
    found.feed(last, "faster", "exact")
    assert found.next() is None and found.skipped == {"b": "the time is spent"}


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(-20, 10), min_size=1), st.randoms())
def test_it_always_ends_and_keeps_only_what_pays(gains: dict[str, float], random) -> None:
    candidates = [candidate(name, random.uniform(1, 40)) for name in gains]
    found = search(*candidates)
    plans = play(found, gains)
    assert all(gains[name] > 0 for name in found.kept)
    assert len({plan.remedy for plan in plans if plan.purpose == "add"}) == len(gains)
    assert sum(plan.purpose == "final" for plan in plans) == bool(found.kept)
    for one, other in itertools.pairwise([plan for plan in plans if plan.purpose == "add"]):
        assert set(one.baseline) <= set(other.baseline)
