"""BRR501 to BRR504 and BRR701, on devices and ranks made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Account, HostGroup, LineGroup, OpGroup
from gobrrr.recording.model.facts import Facts, ModuleFacts, OptimizerFacts, RankFacts, Wrapper
from gobrrr.rules import load
from gobrrr.rules.communication.ranks import ALL_REDUCE
from gobrrr.rules.sync.waits_for_host import between_launches
from tests.support.handmade import ALL_SIGNALS, LINE, MS, OTHER_LINE, Case, op
from tests.support.rule_lines import LOOP

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


@pytest.mark.parametrize(
    ("compiled", "fused", "remedies", "advice"),
    [
        (False, False, ("compile", "compile_reduce_overhead"), "torch.compile(model, "),
        (True, False, (), 'mode="reduce-overhead" of the torch.compile that is there'),
        (True, True, (), 'mode="reduce-overhead" of the torch.compile that is there'),
    ],
)
def test_a_compiled_model_is_told_what_is_left(compiled, fused, remedies, advice):
    """nanoGPT compiles itself: `tune` compiles nothing twice."""
    model, optimizer = ModuleFacts(id=0, num_params=9, compiled=compiled), OptimizerFacts(id=0, fused=fused)
    its = Case(facts=Facts(modules=(model,), optimizers=(optimizer,)), extra={"device": device(**LAUNCHING)})
    (found,) = its.raised("BRR504")
    assert found.remedies == remedies and found.advice.startswith(advice)
    assert "a larger batch" in found.advice and ("fused" in found.advice) is not fused


def test_where_one_model_of_two_is_not_compiled_it_still_can_be():
    models = tuple(ModuleFacts(id=n, num_params=9, compiled=bool(n)) for n in range(2))
    (found,) = Case(facts=Facts(modules=models), extra={"device": device(**LAUNCHING)}).raised("BRR504")
    assert "compile" in found.remedies and found.advice.startswith("torch.compile(model, ")
    assert "fused" in found.advice, "nothing is known of its optimizer"


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
    assert found.where == (LINE,) and found.evidence["at_line"].value == 4 * MS
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


def accumulated(
    sent: float,
    added: float,
    *more: OpGroup,
    ms: float = 30,
    phase: str = "backward",
    trainable: int = 1000,
    found: DeviceLedger | None = None,
    **module: Any,
) -> Case:
    """A net of 1,000 parameters whose buckets, a quarter and three quarters of them, are sent `sent` times per update;
    `added` times is a gradient added to one that is there already. A number for a metric is summed at each pass."""
    sums = [OpGroup(ALL_REDUCE, ((size,), ()), where=(LOOP,), calls=sent, ns=MS, phase=phase) for size in (250, 750)]
    metric = OpGroup(ALL_REDUCE, ((1,), ()), where=(OTHER_LINE,), calls=8, ns=MS, phase="other")
    grown = [op("add_", (size,), (size,), (), calls=added, ms=0.1, phase="backward") for size in (400, 600)]
    net = {"kind": "DistributedDataParallel", "num_params": 1200, "calls_per_step": 8.0, **module}
    facts = Facts(
        modules=(
            ModuleFacts(1, trainable_params=trainable, **net),
            ModuleFacts(2, "Linear", 900, trainable_params=900),
        ),
        # What an optimizer holds says nothing of what is sent: here the last layer alone and a frozen one.
        optimizers=(OptimizerFacts(0, micro_steps=8, num_elements=9_000, shapes=(((400,), 1), ((600,), 1))),),
    )
    wait = (Account("communication", ms * MS, ms / 100),)
    return Case(ops=(*sums, metric, *grown, *more), facts=facts, accounts=wait, extra={"device": found})


def above(each: OpGroup) -> float:
    return max(0.0, each.ns - each.floor_ns)


def test_gradients_that_every_pass_sums_are_told_with_what_the_other_passes_cost():
    (found,) = accumulated(8, 7).raised("BRR703")
    beside = 7 / 8 * 2 * above(op("add_", (1,), ms=0.1))
    assert found.where == (LOOP,) and found.evidence["elements_sent"].value == 8000
    assert found.evidence["parameters"].value == 1000 and found.evidence["backward_passes"].value == 8
    assert found.saving.expected_ns == pytest.approx(7 / 8 * 30 * MS + beside / 2)
    assert found.saving.low_ns == pytest.approx(7 / 16 * 30 * MS)
    assert found.saving.ceiling_ns == pytest.approx(30 * MS + beside)
    assert "8.0 times" in found.message
    zeroed = [op("zero_", (size,), calls=1, ms=0.1, phase="other") for size in (400, 600, 50)]
    within = OpGroup("aten::_foreach_zero_", ((),), calls=8, ns=MS, phase="other", leaf=False)
    (in_place,) = accumulated(8, 8, *zeroed, within).raised("BRR703")
    assert "8.0 times" in in_place.message
    (any_cause,) = accumulated(8, 7).raised("BRR701")
    assert any_cause.saving.expected_ns < found.saving.expected_ns


def test_cores_that_sum_are_missed_by_the_backward_beside_it():
    slowed = op("mm", (8, 8), (8, 8), ms=16, phase="backward")
    quick = op("mm", (8, 8), (8, 8), ms=4, floor_ns=9 * MS, phase="backward")
    other = op("mm", (8, 8), (8, 8), ms=16, phase="forward")
    (idle,), (contended,) = accumulated(8, 7).raised("BRR703"), accumulated(8, 7, slowed, quick, other).raised("BRR703")
    assert contended.saving.expected_ns - idle.saving.expected_ns == pytest.approx(7 / 16 * above(slowed))
    assert contended.saving.ceiling_ns - idle.saving.ceiling_ns == pytest.approx(7 / 8 * above(slowed))
    (full,) = accumulated(8, 7, op("mm", (8, 8), (8, 8), ms=900, phase="backward")).raised("BRR703")
    assert full.saving.ceiling_ns == 100 * MS  # the step
    (sent_by_the_device,) = accumulated(8, 7, slowed, found=device()).raised("BRR703")
    assert sent_by_the_device.saving.expected_ns == pytest.approx(7 / 8 * 30 * MS)
    assert sent_by_the_device.saving.ceiling_ns == 30 * MS


@pytest.mark.parametrize(("sent", "added", "rounds"), [(4, 7, 4), (8, 1, 2), (1.6, 3, 1.6), (6, 0.55, 1.55)])
def test_rounds_are_what_is_sent_again_of_gradients_that_add_up(sent, added, rounds):
    (found,) = accumulated(sent, added).raised("BRR703")
    assert found.saving.low_ns == pytest.approx((1 - 1 / rounds) / 2 * 30 * MS)


@pytest.mark.parametrize(
    "silent",
    [
        accumulated(1, 7),  # no_sync
        accumulated(8, 0),  # zeroed between the passes: a closure's, sharpness-aware minimisation's
        accumulated(1.49, 3),
        accumulated(8, 7, ms=3.3),  # seven eighths of 3.3 % are less than what is worth telling
        accumulated(8, 7, phase="forward"),
        accumulated(8, 7, kind="Sequential"),  # sums of activations, or somebody's own
        accumulated(8, 7, calls_per_step=0.0),
        accumulated(1, 7, OpGroup("c10d::broadcast_", ((9000,),), calls=8, ns=MS, phase="backward")),
        accumulated(1, 7, OpGroup(ALL_REDUCE, (), calls=8, ns=MS, phase="backward")),
        accumulated(8, 0, op("add_", (50, 50), (50, 50), phase="backward")),  # activations
        accumulated(8, 0, op("add_", (600,), (600,), phase="optimizer")),
        accumulated(8, 0, op("add_", (600,), (1,), calls=9, phase="backward")),
        accumulated(8, 0, op("mul_", (600,), (600,), calls=9, phase="backward")),
        accumulated(8, 8, *(op("zero_", (size,), calls=8, ms=0.1, phase="other") for size in (400, 600))),
        accumulated(8, 8, OpGroup("aten::_foreach_zero_", ((),), calls=8, ns=MS, phase="other", leaf=True)),
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


def collective(name: str, ms: float, phase: str = "other", line: Any = LINE, calls: float = 1.0) -> OpGroup:
    return OpGroup(name, ((1,),), calls=calls, ns=ms * MS, phase=phase, where=(line,))


def reduced(*ops: OpGroup, found: DeviceLedger | None = None) -> Case:
    wait = (Account("communication", sum(op.ns for op in ops), sum(op.ns for op in ops) / (100 * MS)),)
    return Case(ops=ops, accounts=wait, extra={"device": found})


OWN = (
    collective("c10d::allreduce_", 4, calls=5), collective("gloo:all_reduce", 8),
    collective("c10d::barrier", 2, line=OTHER_LINE),
    collective(ALL_REDUCE, 6, "backward", LOOP), collective("c10d::_allgather_base_", 5, "forward", LOOP),
)  # fmt: skip


def test_collectives_beside_forward_and_backward_are_told_at_the_line_with_most_of_them():
    (found,) = reduced(*OWN).raised("BRR704")
    assert found.where == (LINE,) and "barrier" in found.message and "14.0 ms" in found.message
    assert (found.saving.low_ns, found.saving.expected_ns, found.saving.ceiling_ns) == (0, 7 * MS, 14 * MS)
    (rest,) = reduced(*OWN).raised("BRR701")
    assert rest.saving.ceiling_ns == 11 * MS, "each wait is one finding's"


def test_what_wrappers_send_and_what_a_device_sends_are_no_metrics():
    assert not reduced(*OWN[3:]).raised("BRR704")
    assert not reduced(*OWN, found=device()).raised("BRR704")
    assert not reduced(collective("c10d::allreduce_", 2)).raised("BRR704"), "too little"
    behind = (collective(ALL_REDUCE, 2, "backward"), collective("gloo:all_reduce", 20))
    assert not reduced(*behind).raised("BRR704"), "the wait of a wrapper, behind its pass"
    assert not reduced(OpGroup("c10d::allreduce_", ns=20 * MS)).raised("BRR704"), "nobody knows where"


def sends(*ops: OpGroup, trained: int = 9000, **of: Any) -> Case:
    optimizer = OptimizerFacts(id=1, kind="SGD", num_tensors=40, num_elements=trained)
    return Case(ops=ops, accounts=reduced(*ops).accounts, facts=Facts(optimizers=(optimizer,), **of))


def around(
    name: str, calls: float, size: int, ms: float, phase: str = "other", line: Any = LINE
) -> tuple[OpGroup, ...]:
    """So many collectives of so many elements, and the thread that carries them."""
    return (
        OpGroup(f"c10d::{name}", ((size,),), calls=calls, ns=0.1 * ms * MS, phase=phase, where=(line,)),
        OpGroup("gloo:all_reduce", calls=calls, ns=ms * MS, phase=phase, where=(line,)),
    )


def test_gradients_that_are_summed_one_by_one_are_no_metrics_but_many_small_collectives():
    case = sends(*around("allreduce_", 34, 300, 20))
    (found,) = case.raised("BRR705")
    assert found.where == (LINE,) and "34 collectives of 1.17 KiB" in found.message and "Distributed" in found.advice
    assert found.saving.expected_ns == pytest.approx(0.5 * 33 / 34 * 20 * MS)
    assert not case.raised("BRR704") and not case.raised("BRR701"), "each wait is one finding's"
    assert "before the first step" in sends(*around("broadcast_", 34, 300, 20)).raised("BRR705")[0].advice


def test_wrappers_that_send_little_at_once_are_told_what_to_set():
    sharded = sends(*around("_allgather_base_", 40, 300, 20, "forward"), trained=10**7)
    assert "whole blocks" in sharded.raised("BRR705")[0].advice
    ranks = RankFacts(0, 2, wrappers=(Wrapper(1, bucket_bytes=64 << 10),))
    buckets = sends(*around("allreduce_", 40, 16_000, 20, "backward"), trained=10**7, ranks=ranks)
    assert "bucket_cap_mb at 25 (here 64.0 KiB)" in buckets.raised("BRR705")[0].advice


@pytest.mark.parametrize(
    "silent",
    [
        sends(*around("allreduce_", 15, 300, 20)),
        sends(*around("allreduce_", 40, 300_000, 20, "backward"), trained=10**7),  # 1.1 MiB each
        sends(*around("allreduce_", 40, 2, 20), trained=10**7),  # metrics
        sends(*around("allreduce_", 40, 300, 1.0)),  # too little
        sends(*around("allreduce_", 40, 300, 20)[:1]),  # nobody saw what one takes
    ],
)
def test_few_or_large_collectives_and_metrics_are_not(silent):
    assert not silent.raised("BRR705")


def test_objects_cost_what_their_line_takes():
    ops = (collective("c10d::allgather_", 2), collective("gloo:all_gather", 3))
    lines = (LineGroup((LINE,), 20 * MS),)
    (found,) = Case(ops=ops, accounts=reduced(*ops).accounts, extra={"lines": lines}).raised("BRR704")
    assert found.saving.ceiling_ns == 20 * MS
