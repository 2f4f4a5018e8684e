"""BRR910: what cannot be is said to be so, and nothing else is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Account, Ledger, Roofline, StepStats
from gobrrr.ledger.ops.raised_ceilings import beaten, faster
from gobrrr.rules import judge
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.rules.validity.sanity import against
from gobrrr.rules.verdict.sentence import judge as verdict
from tests.support.handmade import ALL_SIGNALS, MS, machine


def ledger(**fields: object) -> Ledger:
    """A step of 100 ms, 40 of them compute, 20 waiting, 40 host; profiled steps took 140."""
    accounts = tuple(
        Account(name, ms * MS, ms / 100) for name, ms in (("data_wait", 20), ("compute", 40), ("host", 40))
    )
    step = StepStats(
        count=60, plain_count=50, plain_wall_ns=100 * MS, mean_ns=100 * MS, wall_ns=140 * MS, profiled_count=5
    )
    known = {"step": step, "accounts": accounts, "signals": ALL_SIGNALS - {"device"}}
    return Ledger(**{**known, **fields})  # type: ignore[arg-type]


def doubts(book: Ledger) -> list[Finding]:
    return [found for found in judge(book, machine(), strict=True)[0] if found.code == "BRR910"]


def found(expected: float, code: str = "BRR102", bound: str = "compute", lies: str = "compute") -> Finding:
    saving = Saving(0.0, expected * MS, expected * MS)
    return Finding(code, "name", bound, "critical", saving, "message", lies=((lies, 100 * MS),))


def test_a_sane_run_is_silent():
    assert not doubts(ledger())


@pytest.mark.parametrize(("rate", "raised"), [("mfu", 4.95), ("hfu", 1.2), ("speed_of_light", 1.1)])
def test_no_rate_is_above_its_ceiling(rate, raised):
    (doubt,) = doubts(ledger(roofline=Roofline(**{rate: raised})))
    assert doubt.severity == "critical" and "ceiling" in doubt.message
    assert not doubts(ledger(roofline=Roofline(**{rate: 1.04})))


def test_ceilings_of_a_busy_moment_are_raised_by_the_step_that_beats_them():
    assert beaten(Roofline(mfu=1.07, speed_of_light=1.02)) == 1.07
    assert beaten(Roofline(mfu=0.9)) == beaten(Roofline(mfu=4.95)) == 1.0, "what is far off is another mistake"
    plain, higher = machine(), faster(machine(), 1.07)
    assert higher.flop_rate("fp32", 1) == pytest.approx(1.07 * plain.flop_rate("fp32", 1))
    assert higher.byte_rate(1 << 20, 1) == pytest.approx(1.07 * plain.byte_rate(1 << 20, 1))
    (doubt,) = doubts(ledger(roofline=Roofline(mfu=1.0, raised=1.07)))
    assert doubt.severity == "warning" and "busy moment" in doubt.message


@pytest.mark.parametrize("ms", [-10.0, 120.0])
def test_accounts_are_parts_that_sum_to_the_step(ms):
    accounts = (Account("host", ms * MS, ms / 100), Account("compute", (100 - ms) * MS, 1 - ms / 100))
    assert doubts(ledger(accounts=accounts))
    half = (Account("host", 50 * MS, 0.5),)
    assert doubts(ledger(accounts=half))


def test_where_steps_grow_the_window_is_held_against_those_around_it():
    step = replace(ledger().step, wall_ns=12 * MS, beside_ns=9 * MS)
    assert not doubts(ledger(step=step)), "a window of the first steps"
    assert doubts(ledger(step=replace(step, beside_ns=90 * MS)))
    assert not doubts(ledger(step=replace(step, wall_ns=2900 * MS))), "slow beside those around it, not beside most"


@pytest.mark.parametrize(("wall", "raised"), [(49, True), (51, False), (2900, False), (11_200, True)])
def test_window_and_plain_steps_are_of_one_kind(wall, raised):
    step = replace(ledger().step, wall_ns=wall * MS)
    said = doubts(ledger(step=step))
    assert bool(said) == raised
    assert not said or "gobrrr.steps" in said[0].advice


def test_no_finding_is_above_its_account():
    assert not list(against(ledger(), [found(70)]))
    assert list(against(ledger(), [found(90)])), "80 ms are not the wait"
    assert not list(against(ledger(), [found(20, "BRR401", "data", "data_wait")]))
    assert list(against(ledger(), [found(40, "BRR401", "data", "data_wait")]))


def test_what_is_rare_may_be_more_than_the_usual_step():
    rare = replace(ledger().step, mean_ns=300 * MS)
    assert not list(against(ledger(step=rare), [found(150), found(140)]))
    assert list(against(ledger(step=rare), [found(150), found(180)]))


def test_one_cause_named_again_and_again_is_no_more_than_the_step():
    assert list(against(ledger(), [found(30), found(30), found(30), found(30)]))
    assert not list(against(ledger(), [found(60, code) for code in ("BRR101", "BRR102", "BRR103")])), "they may overlap"


def test_what_cannot_be_makes_the_verdict_unreliable():
    book = ledger(roofline=Roofline(mfu=4.95))
    said = verdict(book, doubts(book))
    assert said.bound == "unreliable" and "495.0 %" in said.sentence and len(said.sentence.split()) <= 25


@pytest.mark.parametrize(("share", "level"), [(0.2, "note"), (0.4, "warning"), (0.6, "critical")])
def test_what_nobody_owns_forbids_a_verdict_where_it_is_most_of_the_step(share, level):
    accounts = (Account("unattributed", share * 100 * MS, share), Account("host", (1 - share) * 100 * MS, 1 - share))
    book = ledger(accounts=accounts)
    said = [f for f in judge(book, machine(), strict=True)[0] if f.code == "BRR908"]
    assert [f.severity for f in said] == [level]
    assert (verdict(book, said).bound == "unreliable") == (level == "critical")
    wait = found(30, "BRR401", "data", "data_wait")
    assert verdict(book, [wait, *said]).bound == "data", "seen in plain steps, whatever the close look missed"
    assert (verdict(book, [found(30, "BRR102"), *said]).bound == "unreliable") == (level == "critical")
