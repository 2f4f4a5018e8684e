"""BRR601 to BRR603: memory that grows, runs out, and costs too much per parameter."""

from __future__ import annotations

import pytest

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import MemoryLedger, StepStats
from gobrrr.recording.model.facts import Facts, HeldGraph
from tests.support.handmade import MS, OTHER_LINE, Case, op

GIB = 1 << 30
HELD = HeldGraph(name="losses", kind="list", length=120, growth_per_step=1.0, span=OTHER_LINE)


def test_a_growing_container_is_named_with_its_line():
    facts = Facts(held_graphs=(HELD,), rss_growth_per_step=40e6, rss_bytes=GIB, memory_limit=8 * GIB)
    (found,) = Case(facts=facts, ops=(op("relu", (8,)),)).raised("BRR601")
    assert found.where == (OTHER_LINE,)
    assert "losses" in found.message and found.cost_bytes == 40_000_000
    assert found.severity == "critical", "7 GiB last for 188 steps"
    assert found.saving.expected_ns == pytest.approx(0.8 * 40e6 / 4096 * 1000, rel=0.01)


def test_a_graph_that_lengthens_backward_costs_the_drift():
    facts = Facts(held_graphs=(HELD,), rss_growth_per_step=1000.0)
    (found,) = Case(facts=facts, step=StepStats(count=60, drift=0.5)).raised("BRR601")
    assert found.saving.expected_ns == pytest.approx(0.4 * 100 * MS / 3, rel=0.01)
    assert found.saving.ceiling_ns >= 33 * MS


def test_a_step_that_doubles_again_and_again_promises_less_than_itself():
    facts = Facts(held_graphs=(HELD,), rss_growth_per_step=1000.0)
    (found,) = Case(facts=facts, step=StepStats(count=60, drift=30.0)).raised("BRR601")
    assert found.saving.expected_ns < 40 * MS
    assert found.saving.ceiling_ns < 100 * MS


@pytest.mark.parametrize(
    ("growth", "count", "raised"),
    [(32e6, 60, True), (4e6, 60, True), (32e6, 4, False), (0.5e6, 5000, False), (0.0, 60, False), (None, 60, False)],
)
def test_creep_without_a_container_must_be_much_and_steady(growth, count, raised):
    case = Case(facts=Facts(rss_growth_per_step=growth), step=StepStats(count=count), ops=(op("relu", (8,)),))
    found = case.raised("BRR601")
    assert bool(found) == raised
    assert not found or (found[0].confidence == "inferred" and not found[0].where)


@pytest.mark.parametrize(("growth", "level"), [(9e6, "critical"), (2e6, "warning"), (0.5e6, "note")])
def test_growth_is_judged_by_the_steps_that_are_left(growth, level):
    facts = Facts(held_graphs=(HELD,), rss_growth_per_step=growth, rss_bytes=0, memory_limit=8 * GIB)
    (found,) = Case(facts=facts).raised("BRR601")
    assert found.severity == level
    assert ("full after" in found.message) == (level != "note")


def test_a_container_that_does_not_grow_is_silent():
    still = HeldGraph(name="outputs", length=3, growth_per_step=0.0)
    assert not Case(facts=Facts(held_graphs=(still,))).raised("BRR601")


@pytest.mark.parametrize(("storage", "own", "said"), [
    (4 << 20, 2048, "views of 4.00 MiB each: 3.91 GiB per 1,000 steps, 141 GiB per hour; full after 2,048 more steps"),
    (4 << 20, 4 << 20, "keeps 120 tensors: 3.91 GiB per 1,000 steps"),
    (65_536, 65_536, ""),
])  # fmt: skip
def test_what_is_kept_without_a_graph_is_told_by_its_bytes(storage, own, said):
    kept = HeldGraph("history", "", 120, 1.0, OTHER_LINE, graph=False, storage_bytes=storage, own_bytes=own)
    found = Case(facts=Facts(held_graphs=(kept,), memory_limit=8 * GIB)).raised("BRR601")
    assert said in (found[0].message if found else "")
    assert not found or (found[0].where == (OTHER_LINE,) and ("clone" in found[0].advice) == (own < storage))


@pytest.mark.parametrize(("share", "level"), [(0.5, None), (0.92, "warning"), (0.98, "critical")])
def test_pressure_is_told_by_the_share_of_the_limit(share, level):
    facts = Facts(peak_rss_bytes=int(share * 8 * GIB), memory_limit=8 * GIB)
    found = Case(facts=facts).raised("BRR602")
    assert [f.severity for f in found] == ([level] if level else [])


def test_swap_in_use_is_critical():
    facts = Facts(peak_rss_bytes=4 * GIB, memory_limit=8 * GIB, swap_used=GIB)
    (found,) = Case(facts=facts).raised("BRR602")
    assert found.severity == "critical" and "swap" in found.message


def test_allocations_that_failed_are_critical_wherever_memory_ends():
    """A program that catches them loses a step each, and says nothing."""
    (found,) = Case(facts=Facts(peak_rss_bytes=GIB, memory_limit=8 * GIB, device_failed=3)).raised("BRR602")
    assert found.severity == "critical" and "3 allocations of the device failed" in found.message
    assert not Case(facts=Facts(peak_rss_bytes=GIB, memory_limit=8 * GIB, device_failed=0)).raised("BRR602")


def test_pressure_without_a_limit_takes_the_machines_memory():
    assert Case(facts=Facts(peak_rss_bytes=15 * GIB)).raised("BRR602")
    assert not Case(facts=Facts()).raised("BRR602")


def test_a_device_without_known_memory_is_not_judged_by_the_hosts_peak():
    device = DeviceLedger("gpu", busy_ns=1.0, idle_ns=1.0, span_busy_share=0.5)
    case = Case(facts=Facts(peak_rss_bytes=GIB), extra={"device": device, "memory": MemoryLedger(peak=2 * GIB)})
    assert not case.raised("BRR602")


@pytest.mark.parametrize(("each", "raised"), [(16.0, False), (18.0, False), (24.0, True), (None, False)])
def test_bytes_per_parameter(each, raised):
    parts = {"parameters": 400 << 20, "gradients": 400 << 20, "optimizer_state": 1600 << 20} if each else {}
    found = Case(extra={"memory": MemoryLedger(bytes_per_parameter=each, **parts)}).raised("BRR603")
    assert bool(found) == raised
    assert not found or (found[0].severity == "note" and found[0].cost_bytes == 600 << 20)


def test_few_bytes_are_nobodys_concern_whatever_they_are_per_parameter():
    few = MemoryLedger(bytes_per_parameter=24.0, parameters=400, gradients=400, optimizer_state=1600)
    assert not Case(extra={"memory": few}).raised("BRR603")
