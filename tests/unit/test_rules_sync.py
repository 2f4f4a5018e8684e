"""BRR501 to BRR504 and BRR701, on devices and ranks made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gobrrr.ledger.devicemodel import DeviceLedger
from gobrrr.ledger.model import Account, HostGroup, OpGroup
from gobrrr.recording.facts import Facts, OptimizerFacts
from gobrrr.rules import load
from gobrrr.rules.sync import between_launches
from tests.unit.handmade import ALL_SIGNALS, LINE, MS, OTHER_LINE, Case, op
from tests.unit.rule_lines import LOOP

PAGEABLE = ("Memcpy HtoD (Pageable -> Device)", 2, 64 << 20, 18 * MS)
PINNED = ("Memcpy HtoD (Pinned -> Device)", 2, 64 << 20, 4 * MS)


def device(**fields: Any) -> DeviceLedger:
    return DeviceLedger("A100", **{"busy_ns": 60 * MS, "idle_ns": 40 * MS, "span_busy_share": 0.7, **fields})


def case(found: DeviceLedger | None, *ops: OpGroup) -> Case:
    return Case(ops=ops, extra={"device": found})


def test_a_sync_costs_the_idle_time_it_causes():
    syncs = (("cudaStreamSynchronize", 64.0, 20 * MS, (LINE,)), ("cudaMemcpy", 1.0, 1 * MS, (OTHER_LINE,)))
    (found,) = case(device(syncs=syncs)).raised("BRR501")
    assert found.where == (LINE,) and found.saving.ceiling_ns == 20 * MS and found.severity == "warning"
    assert found.evidence["calls_per_step"].value == 64


def test_what_to_do_about_a_copy_that_blocks_depends_on_its_direction():
    syncs = ((PAGEABLE[0], 2.0, 20 * MS, (LINE,)), ("Memcpy DtoH (Device -> Pageable)", 1.0, 9 * MS, (OTHER_LINE,)))
    there, back = case(device(syncs=syncs)).raised("BRR501")
    assert "pin_memory" in there.advice and "on the device" in back.advice


def test_a_long_call_that_leaves_no_idle_time_is_not_told():
    assert not case(device(syncs=(("cudaDeviceSynchronize", 1.0, 0.0, (LINE,)),))).raised("BRR501")
    assert not case(None).raised("BRR501")


def test_exposed_pageable_copies_are_told_with_their_part():
    moved = op("_to_copy", (64, 3, 224, 224), ms=1, where=(OTHER_LINE,))
    (found,) = case(device(copies=(PAGEABLE, PINNED), exposed_copy_ns=15 * MS), moved).raised("BRR502")
    assert "pageable" in found.message and found.where == (OTHER_LINE,)
    assert found.saving.ceiling_ns == 15 * MS and found.bound == "transfer"


def test_hidden_copies_are_no_matter():
    assert not case(device(copies=(PAGEABLE,), exposed_copy_ns=4 * MS)).raised("BRR502")
    assert not case(None).raised("BRR502")


def test_pinned_copies_that_show_promise_less():
    pinned = case(device(copies=(PINNED,), exposed_copy_ns=15 * MS)).raised("BRR502")[0]
    pageable = case(device(copies=(PAGEABLE,), exposed_copy_ns=15 * MS)).raised("BRR502")[0]
    assert "pageable" not in pinned.message and pinned.saving.low_ns < pageable.saving.low_ns


def reading(*ops: OpGroup, on: DeviceLedger | None = None) -> list[Any]:
    return list(load()["BRR503"].check(case(on, *ops).ledger, Case().machine))


def test_reading_a_tensor_is_a_note_that_costs_nothing_here():
    item = op("item", ms=0.1, calls=100.0)
    inner = op("_local_scalar_dense", ms=0.1, calls=100.0, parents=("aten::item",))
    (found,) = reading(item, inner, op("nonzero", ms=0.1, phase="data"))
    assert found.where == (LINE,) and found.severity == "note" and found.saving.ceiling_ns == 0
    assert found.evidence["calls_per_step"].value == 100, "one stall, not two"
    assert load()["BRR503"].portability


def test_on_a_device_the_price_is_known_and_nothing_is_read_in_a_clean_step():
    assert not reading(op("item", ms=0.1), on=device())
    assert not reading(op("mm", (8, 8)))


LAUNCHING = {"short_kernel_share": 0.8, "idle_by_cause": (("launch", 25 * MS), ("data_wait", 5 * MS)), "kernels": ()}


def test_short_kernels_and_a_late_host_are_launch_bound():
    (found,) = case(device(**LAUNCHING), op("add", (8, 8), ms=5)).raised("BRR504")
    assert found.saving.ceiling_ns == 25 * MS and found.saving.expected_ns == 15 * MS and found.where == (LINE,)
    (found,) = case(device(**LAUNCHING), op("add", (8, 8), ms=1)).raised("BRR504")
    assert found.where == (), "4 % of it lies under the line"


def test_a_stretch_of_a_millisecond_without_an_op_is_not_launching():
    assert not case(device(**LAUNCHING, held_ns=20 * MS), op("add", (8, 8), ms=5)).raised("BRR504")


@pytest.mark.parametrize(
    "other",
    [
        {"short_kernel_share": 0.4, "idle_by_cause": (("host", 25 * MS), ("data_wait", 5 * MS))},
        {"idle_ns": 14 * MS},
        {"idle_by_cause": (("data_wait", 38 * MS),)},
    ],
)
def test_idle_for_other_reasons_is_not_launch_bound(other):
    assert not case(device(**{**LAUNCHING, **other})).raised("BRR504")
    assert not case(None).raised("BRR504")


def test_python_of_short_kernels_is_the_launches_inside_of_modules_and_the_lines_outside():
    """Each nanosecond once: 12 ms between the model's ops, 20 before them."""
    idle = (("launch", 8 * MS), ("host", 32 * MS))
    found = Case(
        ops=(op("add", (8, 8), ms=8),),
        signals=ALL_SIGNALS - {"samples"},
        extra={
            "device": device(short_kernel_share=0.8, idle_by_cause=idle),
            "host": (HostGroup((LINE,), 12 * MS, "forward"), HostGroup((OTHER_LINE,), 20 * MS, "other")),
        },
    )
    (launches,) = found.raised("BRR504")
    (python,) = found.raised("BRR302")
    assert launches.saving.ceiling_ns == 20 * MS and python.where == (OTHER_LINE,)
    assert python.evidence["python_time"].value == 20 * MS
    assert launches.saving.ceiling_ns + python.evidence["python_time"].value <= 40 * MS


def test_what_lies_under_another_line_is_not_said_to_be_here():
    elsewhere = op("mm", (8, 8), ms=1, where=(OTHER_LINE,)), op("mul", (8, 8), ms=5, where=())
    (found,) = case(device(**LAUNCHING), op("add", (8, 8), ms=4), *elsewhere).raised("BRR504")
    assert found.where == (LINE,) and "4.00 ms of it under this line" in found.message
    assert found.evidence["at_line"].value == 4 * MS


def ranks(ms: float, **facts: Any) -> Case:
    reduced = OpGroup("c10d::allreduce_", where=(LOOP,), calls=2.0, ns=1 * MS, phase="backward")
    return Case(ops=(reduced,), facts=Facts(**facts), accounts=(Account("communication", ms * MS, ms / 100),))


def test_waiting_for_other_ranks_is_told_within_its_account():
    (found,) = ranks(30).raised("BRR701")
    assert found.where == (LOOP,) and found.saving.ceiling_ns == 30 * MS and found.saving.expected_ns == 18 * MS


@pytest.mark.parametrize("silent", [ranks(4), Case()])
def test_little_communication_or_one_rank_is_silent(silent):
    assert not silent.raised("BRR701")


def accumulated(passes: float, sent: float, ms: float = 30, phase: str = "backward", num_optimizers: int = 1) -> Case:
    """Buckets of a quarter and of three quarters of a thousand parameters, all of them sent `sent` times per update of
    so many backward passes; and one number, which every pass sums for a metric."""
    buckets = [
        OpGroup("c10d::allreduce_", ((size,), ()), where=(LOOP,), calls=sent, ns=1 * MS, phase=phase)
        for size in (250, 750)
    ]
    metric = OpGroup("c10d::allreduce_", ((1,), ()), where=(OTHER_LINE,), calls=passes, ns=1 * MS, phase="other")
    optimizers = tuple(OptimizerFacts(i, micro_steps=passes, num_elements=1000) for i in range(num_optimizers))
    wait = (Account("communication", ms * MS, ms / 100),)
    return Case(ops=(*buckets, metric), facts=Facts(optimizers=optimizers), accounts=wait)


def test_gradients_that_every_pass_sums_are_told_with_what_the_other_passes_cost():
    (found,) = accumulated(8, 8).raised("BRR703")
    assert found.where == (LOOP,) and found.evidence["elements_summed"].value == 8000
    assert found.saving.expected_ns == pytest.approx(7 / 8 * 30 * MS) and found.saving.ceiling_ns == 30 * MS
    assert "8.0 times" in found.message and "8 backward passes" in found.message
    busy = accumulated(8, 8)
    slowed = op("mm", (8, 8), (8, 8), ms=16, phase="backward")
    (contended,) = dataclasses.replace(busy, ops=(*busy.ops, slowed)).raised("BRR703")
    above = 7 / 8 * (16 * MS - slowed.floor_ns)
    assert contended.saving.expected_ns == pytest.approx(7 / 8 * 30 * MS + above / 2)
    assert contended.saving.ceiling_ns == pytest.approx(30 * MS + above)
    (some,) = accumulated(8, 4).raised("BRR703")
    assert some.saving.expected_ns == pytest.approx(3 / 4 * 30 * MS)
    (any_cause,) = accumulated(8, 8).raised("BRR701")
    assert any_cause.saving.expected_ns < found.saving.expected_ns


@pytest.mark.parametrize(
    "silent",
    [
        accumulated(8, 1),
        accumulated(1, 1),
        accumulated(1, 8),
        accumulated(8, 8, ms=2),
        accumulated(8, 8, phase="forward"),
        accumulated(2, 2, num_optimizers=2),
        Case(),
    ],
)
def test_gradients_that_are_summed_once_per_update_are_not(silent):
    assert not silent.raised("BRR703")


def test_long_kernels_wait_for_torch_too():
    (found,) = case(device(**{**LAUNCHING, "short_kernel_share": 0.4}), op("add", (8, 8))).raised("BRR504")
    assert "inside torch" in found.message and found.saving.ceiling_ns == 25 * MS


def test_without_a_device_nothing_is_on_the_way_to_a_launch():
    case = Case(ops=(op("mm", (8, 8), (8, 8), ms=1),))
    assert between_launches(case.ledger) == ([], list(case.ledger.host))
