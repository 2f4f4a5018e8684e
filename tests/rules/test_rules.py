"""The judge: which rules are asked, in what order findings come, and what becomes of a rule that fails."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.recording.model.facts import Facts
from gobrrr.rules import judge, load
from gobrrr.rules.model import finding as rules_model
from gobrrr.rules.model.finding import Cause, finding
from tests.rules.test_rules_compute import fp32_products, in_double
from tests.support.handmade import ALL_SIGNALS, MS, Case, machine, op


def test_codes_are_unique_and_their_band_fits_their_bound():
    rules = load()
    assert list(rules) == sorted(rules)
    assert all(rule.bound in rules_model.BOUNDS for rule in rules.values())
    assert all(code.startswith("BRR") and len(code) == 6 for code in rules)
    bands = {"1": {"compute"}, "2": {"bandwidth"}, "6": {"memory"}, "8": {"compile"}}
    assert all(rule.bound in bands.get(code[3], {rule.bound}) for code, rule in rules.items())


def test_an_empty_ledger_finds_nothing_and_breaks_nothing():
    found, _ = judge(Case().ledger, machine(), strict=True)
    assert found == []


def test_rules_without_their_signals_are_skipped_with_the_reason():
    case = in_double()
    found, skipped = judge(replace(case.ledger, signals=ALL_SIGNALS - {"shapes"}), case.machine, strict=True)
    assert not any(f.code == "BRR101" for f in found)
    assert dict(skipped)["BRR101"] == "needs shapes, which this recording lacks"


def test_findings_come_in_the_order_of_their_expected_saving():
    case = in_double()
    case.ops += fp32_products().ops
    case.machine = machine(bf16=400, fp32_medium=300)
    found, _ = judge(case.ledger, case.machine, strict=True)
    savings = [f.saving.expected_ns for f in found]
    assert len(found) >= 2 and savings == sorted(savings, reverse=True)
    assert judge(case.ledger, case.machine)[0] == found, "the same ledger, the same findings"


def test_a_rule_that_fails_is_named_and_costs_no_other_finding(monkeypatch):
    def broken(ledger, machine):
        raise ZeroDivisionError
        yield

    case = in_double()
    monkeypatch.setitem(rules_model.REGISTRY, "BRR102", replace(load()["BRR102"], check=broken))
    found, skipped = judge(case.ledger, case.machine)
    assert any(f.code == "BRR101" for f in found)
    assert "ZeroDivisionError" in dict(skipped)["BRR102"]
    with pytest.raises(ZeroDivisionError):
        judge(case.ledger, case.machine, strict=True)


def test_rules_of_other_devices_are_asked_for_portability_only(monkeypatch):
    case = in_double()
    monkeypatch.setitem(rules_model.REGISTRY, "BRR101", replace(load()["BRR101"], portability=True))
    assert not any(f.code == "BRR101" for f in judge(case.ledger, case.machine)[0])
    assert any(f.code == "BRR101" for f in judge(case.ledger, case.machine, portability=True)[0])


def test_what_is_rare_may_cost_the_mean_step_and_what_is_usual_the_median_one():
    case = Case(ms=100)
    case.step = replace(case.step, mean_ns=230 * MS)

    def most(**fields: bool) -> float:
        cause = Cause(saving=(0.0, 0.0, 400 * MS), message="late", advice="none", **fields)
        return finding("BRR404", case.ledger, cause).saving.ceiling_ns

    assert most(rare=True) == 230 * MS and most() == 100 * MS


def test_how_severe_is_what_is_rare_goes_by_the_mean_step():
    """15 of 230 ms are a note, though more than a tenth of the usual step."""
    case = Case(ms=100)
    case.step = replace(case.step, mean_ns=230 * MS)
    said = {"saving": (0.0, 15 * MS, 20 * MS), "message": "late", "advice": "none"}
    assert finding("BRR404", case.ledger, Cause(**said, rare=True)).severity == "note"
    assert finding("BRR404", case.ledger, Cause(**said)).severity == "warning"


@pytest.mark.parametrize(("waiting", "least"), [(None, 20 * MS), (0.0, 20 * MS), (3.0, 5 * MS)])
def test_less_is_sure_to_come_back_where_threads_wait_for_cores(waiting: float | None, least: float) -> None:
    """Three quarters of the time that they wanted a core: of so much of a step nobody knows what it would be."""
    ledger = Case(ms=100, facts=Facts(process_load=1.0, waiting_load=waiting)).ledger
    found = finding("BRR302", ledger, Cause(saving=(20 * MS, 30 * MS, 40 * MS), message="slow", advice="none"))
    assert found.saving.low_ns == pytest.approx(least) and found.saving.expected_ns == 30 * MS


def test_what_the_host_does_brings_back_the_devices_idle_time_at_most():
    """20 ms of 100, of which 5 with work queued: those are nobody's to bring back."""
    device = DeviceLedger("gpu", busy_ns=80 * MS, idle_ns=20 * MS, span_busy_share=0.8,
                          idle_by_cause=(("stalled", 5 * MS),))  # fmt: skip

    def most(code: str, **extra: DeviceLedger) -> float:
        ledger = Case(ms=100, extra=extra).ledger
        cause = Cause(saving=(0.0, 90 * MS, 90 * MS), message="late", advice="none")
        return finding(code, ledger, cause).saving.expected_ns

    assert most("BRR404", device=device) == 15 * MS and most("BRR404") == 90 * MS
    assert most("BRR101", device=device) == 90 * MS, "work is the device's"


def test_what_a_finding_says_it_holds_is_the_most_that_comes_back():
    case = Case(ms=100)
    case.step = replace(case.step, low_ns=50 * MS, high_ns=150 * MS)
    said = {"saving": (0.0, 0.0, 20 * MS), "message": "m"}
    held = finding("BRR311", case.ledger, Cause(**said, holds=20 * MS))
    free = finding("BRR311", case.ledger, Cause(**said))
    assert (held.saving.ceiling_ns, free.saving.ceiling_ns) == (20 * MS, 22 * MS)


def test_where_threads_wait_for_cores_nothing_is_rehearsed_and_nothing_promised():
    def played(findings):
        raise AssertionError("rehearsed")

    crowded = Facts(process_load=1.0, waiting_load=1.0, other_load=1.0)
    case = Case(ops=(op("embedding_renorm_", (8,), ms=60),), facts=crowded)
    findings, _ = judge(case.ledger, case.machine, rehearsed=played, strict=True)
    said = {each.code: each for each in findings}
    assert said["BRR905"].severity != "note" and said["BRR320"].saving.low_ns == 0 < said["BRR320"].saving.expected_ns
