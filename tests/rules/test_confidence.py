"""Confidence: one level and the one reason that matters most; notes on the measurement leave it high."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr import rules
from gobrrr.ledger.model.ledger import Ledger, StepStats
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.build import build
from gobrrr.rules.verdict.report import Confidence, Report
from tests.support import report_samples as samples

MS = samples.MS

rules.load()  # the headline asks what each rule needs


def report(*findings: Finding, ledger: Ledger | None = None, **step: object) -> Report:
    """The starved step of 62 ms, known to 2.2 ms, with a saving of 30 ms."""
    book = ledger or samples.starved_ledger(step=samples.step(62.0, **step))
    return build(book, None, [samples.finding(), *findings])


def doubt(code: str, severity: str, message: str = "it is so") -> Finding:
    return samples.finding(code, 0.0, severity=severity, message=message, advice="Mend it. Or do not.")


def told(found: Report) -> Confidence:
    assert found.confidence is not None
    return found.confidence


def test_high_where_nothing_speaks_against_it() -> None:
    for findings in ((), (doubt("BRR902", "note"), doubt("BRR907", "note"))):
        said = report(*findings)
        assert told(said) == Confidence("high", "48 plain steps, the 95 % interval is 3.6 % wide")
        assert said.confidence_line == "Confidence: high: 48 plain steps, the 95 % interval is 3.6 % wide"


def test_fair_for_the_one_doubt_that_matters_most() -> None:
    said = report(doubt("BRR903", "warning", "Slow."), doubt("BRR902", "warning", "The steps differ."))
    assert told(said) == Confidence("fair", "the steps differ", "BRR902", "mend it")
    assert said.confidence_line == "Confidence: fair: the steps differ (BRR902); mend it"


def test_what_the_headline_says_already_is_followed_by_what_would_settle_it() -> None:
    said = report(doubt("BRR902", "warning"), doubt("BRR905", "warning", "others had the cores"))
    assert "BRR905" in said.verdict.sentence and told(said).code == "BRR905"
    assert said.confidence_line == "Confidence: fair: as the headline says; mend it"


def test_low_where_the_verdict_is_unreliable() -> None:
    said = report(doubt("BRR905", "warning"), doubt("BRR902", "critical", "the steps differ"))
    assert said.verdict.bound == "unreliable"
    assert told(said) == Confidence("low", "the steps differ", "BRR902", "mend it. Or do not")
    assert said.confidence_line == "Confidence: low: as the headline says; mend it. Or do not"
    assert told(report(ledger=Ledger(step=StepStats()))).level == "low"


@pytest.mark.parametrize(("wide", "level"), [(29.9, "high"), (30.0, "fair"), (0.0, "fair")])
def test_an_interval_wider_than_the_saving_is_no_high(wide: float, level: str) -> None:
    low, high = (40 * MS, (40 + wide) * MS) if wide else (0.0, 0.0)
    assert told(report(low_ns=low, high_ns=high)).level == level


def test_without_a_cause_the_interval_must_be_narrower_than_a_tenth_of_the_step() -> None:
    for wide, level in ((6.1, "high"), (6.3, "fair")):
        step = samples.step(62.0, low_ns=60 * MS, high_ns=(60 + wide) * MS)
        assert told(build(samples.starved_ledger(step=step), None, [])).level == level


def test_where_no_saving_is_told_none_is_named() -> None:
    wide = {"low_ns": 40 * MS, "high_ns": 70 * MS}
    alone = told(build(samples.starved_ledger(step=samples.step(62.0, **wide)), None, []))
    assert alone.reason == "the step's 95 % interval is 48.4 % wide, the least saving that is told 10.0 %"
    assert told(report(low_ns=30 * MS, high_ns=70 * MS)).reason.endswith("wide, the saving 48.4 %")


@pytest.mark.parametrize("signals", [frozenset(), frozenset({"offline"})])
def test_the_reason_of_low_is_the_doubt_of_the_headline(signals: frozenset[str]) -> None:
    """Unattributed time is no doubt beside a finding of plain steps, and the run may be unreliable for another."""
    book = samples.starved_ledger(signals=signals)
    unowned, few = doubt("BRR908", "critical", "unowned"), doubt("BRR910", "critical", "impossible")
    found = report(unowned, few, ledger=book)
    assert found.verdict.sentence == "Unreliable: impossible (BRR910)." and told(found).code == "BRR910"
    assert [f.code for f in found.findings] == ["BRR910", "BRR401", "BRR908"]
    assert told(report(unowned, ledger=book)) == Confidence("fair", "unowned", "BRR908", "mend it")
    untimed = told(report(doubt("BRR904", "warning", "lacks ops"), ledger=Ledger(step=StepStats())))
    assert untimed.level == "low" and untimed.reason == "no step was timed without the profiler"


def test_a_trace_is_no_more_than_fair() -> None:
    said = report(ledger=samples.starved_ledger(signals=frozenset({"offline"})))
    assert told(said).reason == "every step ran under the profiler"


def test_a_file_is_recorded_again() -> None:
    """A program makes more steps by itself; a file, and one that does not say where its steps end, cannot."""
    of_a_file = frozenset({"offline"})
    few = {"low_ns": 0.0, "high_ns": 0.0, "plain_count": 1}
    for signals, reason, settle in (
        (frozenset(), "1 timed step without an interval", "let the program make more steps"),
        (of_a_file, "1 timed step without an interval", "record more steps"),
        (
            of_a_file | {"unmarked"},
            "the file does not say where a step ends",
            "call prof.step() after each step and record again",
        ),
    ):
        said = told(report(ledger=samples.starved_ledger(step=samples.step(62.0, **few), signals=signals)))
        assert (said.reason, said.settle) == (reason, settle)


def test_a_report_of_an_older_version_says_nothing() -> None:
    assert replace(report(), confidence=None).confidence_line == ""
