"""What computing samples once would bring: from what the run itself showed, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.recording.model.facts import InputFacts
from gobrrr.remedies import registry
from gobrrr.rules.data.loader_advice import LEAST_LOOKS, SAMPLE_NS
from gobrrr.rules.verdict.report import Report, Step, Verdict
from tests.support.handmade import ALL_SIGNALS, MS, Case
from tests.support.rule_lines import GETITEM, LOOP, line, waiting

EPOCHS = (1000, 1000)


def computing(ms: float = 40.0, **fields: Any) -> Case:
    """40 of 100 ms are spent on samples for which nothing random was drawn, in two epochs."""
    given = {"num_looked": 20, "length": 799, "iter_ns": EPOCHS, **fields}
    inputs = given.pop("inputs", ())
    busy = line(ms, GETITEM, LOOP, phase="data")
    return waiting(ms, busy, facts={"process_load": 2.0, "inputs": inputs}, **given)


def test_what_draws_nothing_and_comes_again_is_computed_once() -> None:
    (found,) = computing().raised("BRR401")
    reading = 8 * SAMPLE_NS
    assert found.saving.expected_ns == pytest.approx(40 * MS - reading)
    assert found.evidence["saved_by_keeping"].value == pytest.approx(40 * MS - reading)
    assert found.evidence["batches_without_draws"].value == 20
    assert found.evidence["expected_by"].value == "what taking kept samples from memory takes here"
    assert "[dataset[i] for i in" in found.advice and "second epoch" not in found.advice
    assert "computed_once" in found.remedies


def test_what_is_copied_is_counted() -> None:
    size = 64 << 20
    case = computing(inputs=(InputFacts(num_bytes=size),))
    copied = 2 * size * 1e9 / case.machine.byte_rate(size, 1)
    (found,) = case.raised("BRR401")
    assert found.saving.expected_ns == pytest.approx(max(0.0, 40 * MS - 8 * SAMPLE_NS - copied))


def test_what_collating_takes_stays() -> None:
    case = computing()
    plain = case.raised("BRR401")[0].evidence["saved_by_keeping"].value
    case.extra["lines"] = (
        line(30, GETITEM, LOOP, phase="data"),
        line(10, LOOP, phase="data", torch__utils__data___utils__collate__default_collate=10.0),
    )
    assert plain - case.raised("BRR401")[0].evidence["saved_by_keeping"].value == pytest.approx(10 * MS)


def test_of_one_epoch_nothing_is_promised() -> None:
    (found,) = computing(iter_ns=(1000,)).raised("BRR401")
    assert found.saving.expected_ns == pytest.approx(28 * MS), "the guess of a cheaper way"
    assert "saved_by_keeping" not in found.evidence and "From a second epoch on" in found.advice
    (found,) = computing(length=800).raised("BRR401")
    assert "saved_by_keeping" not in found.evidence, "each was given once, by loaders that were begun anew"
    assert "computed_once" not in found.remedies
    (found,) = computing(iter_ns=(1000,), unseen_epochs=1).raised("BRR401")
    assert "saved_by_keeping" in found.evidence, "it began while nobody looked"


@pytest.mark.parametrize(
    "fields",
    [{"num_looked": LEAST_LOOKS - 1}, {"num_drew": 1}, {"length": None}, {"num_looked": 0}, {"num_workers": 1}],
)
def test_who_draws_who_was_not_looked_at_and_who_has_workers_is_told_as_before(fields: dict[str, Any]) -> None:
    (found,) = computing(**fields).raised("BRR401") or computing(**fields).raised("BRR405")
    assert "batches_without_draws" not in found.evidence and "[dataset[i] for i in" not in found.advice


def test_samples_of_data_in_memory_that_cost_more_than_an_index_may_be_kept() -> None:
    """Of an MNIST bytes in memory, and a picture made and scaled for each: 42 us. Kept 1.8 to 2.2 times as fast,
    where nothing could be fetched at once."""
    (found,) = computing(in_memory=True, batch_size=1024).raised("BRR408")
    assert found.evidence["saved_by_keeping"].value == pytest.approx(40 * MS - 1024 * SAMPLE_NS)
    assert found.remedies == ("batched_fetch", "computed_once") and "[dataset[i] for i in" in found.advice
    report = Report(verdict=Verdict("data", ""), step=Step(10, 10**8, 10**8), findings=(found,))
    assert registry.remedy("computed_once").predicts(report).expected_ns == pytest.approx(40 * MS - 1024 * SAMPLE_NS)
    (once,) = computing(in_memory=True, batch_size=1024, iter_ns=(1000,)).raised("BRR408")
    assert once.remedies == ("batched_fetch",) and "[dataset[i] for i in" not in once.advice


def test_reading_that_comes_again_may_be_kept_too() -> None:
    case = waiting(
        60, line(60, GETITEM, LOOP, phase="data", waiting=True),
        facts={"process_load": 0.5}, num_looked=20, length=799, iter_ns=EPOCHS,
    )  # fmt: skip
    (found,) = case.raised("BRR405")
    assert found.evidence["saved_by_keeping"].value == pytest.approx(60 * MS - 8 * SAMPLE_NS)
    assert "computed_once" in found.remedies


def test_a_trace_says_nothing_of_draws() -> None:
    case = computing(num_looked=0)
    case.signals = (ALL_SIGNALS - {"device"}) | {"offline"}
    assert all("saved_by_keeping" not in found.evidence for found in case.raised("BRR405"))


def test_inputs_that_were_noted_in_several_steps_are_of_one_batch() -> None:
    size = 64 << 20
    case = computing(inputs=(InputFacts(num_bytes=size),) * 3)
    once = computing(inputs=(InputFacts(num_bytes=size),)).raised("BRR401")[0].evidence["saved_by_keeping"].value
    assert case.raised("BRR401")[0].evidence["saved_by_keeping"].value < once
    case.facts = replace(case.facts, counted_steps=3)
    assert case.raised("BRR401")[0].evidence["saved_by_keeping"].value == pytest.approx(once)
