"""Rules where an accelerator works: what they ask of kernels, what of its idle time, what of neither."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.devicemodel import DeviceLedger
from gobrrr.ledger.model import OpGroup
from gobrrr.recording.facts import Facts
from tests.unit import test_rules_compute_waste as waste
from tests.unit import test_rules_data as data
from tests.unit import test_rules_overhead as overhead
from tests.unit.handmade import LINE, MS, Case, op
from tests.unit.rule_lines import host, line, lines


def device(busy: float = 90.0, **fields: Any) -> DeviceLedger:
    """A device that works `busy` of 100 ms."""
    given = {"busy_ns": busy * MS, "idle_ns": (100 - busy) * MS, "span_busy_share": busy / 100, **fields}
    return DeviceLedger("gpu", **given)


def on_gpu(case: Case, *kernels: OpGroup, **fields: Any) -> Case:
    """The same program, whose ops the host only launches: `kernels` is their work."""
    case.phases = ()
    case.extra = {**case.extra, "device": device(**fields), "device_ops": kernels}
    return case


def test_padding_is_priced_by_the_kernels_that_work_on_it():
    """The host's ops have no phases and no time of their own there; the embedding that launches them has no kernel."""
    kernels = (op("mm", ms=30), op("mm", ms=50, phase="backward"), op("_fused_adamw_", ms=10, phase="optimizer"))
    (found,) = on_gpu(data.padded(0.84, longest=128), *kernels).raised("BRR409")
    assert found.saving.expected_ns == pytest.approx(0.75 * 80 * MS * 0.9)  # the device works 90 % of the step
    assert found.saving.ceiling_ns == pytest.approx(0.84 * 80 * MS)
    assert found.where == (LINE,) and found.holds_ns == pytest.approx(0.84 * 80 * MS)


def test_attention_grows_with_the_square_of_the_padding_on_a_device_too():
    kernels = (op("mm", ms=40), op("_efficient_attention_forward", (16, 4, 512, 16), ms=40))
    (found,) = on_gpu(data.padded(0.5, longest=256), *kernels).raised("BRR409")
    assert found.evidence["attention_time"].value == 40 * MS
    assert found.saving.ceiling_ns == pytest.approx((0.5 + 0.75) * 40 * MS)


def test_padding_of_a_device_that_hardly_works_is_not_told():
    assert not on_gpu(data.padded(0.84), op("mm", ms=4), busy=4).raised("BRR409")


STOPS = (("cudaStreamSynchronize", 1.0, 4 * MS, (LINE,)),)
PRINTED = {"torch___tensor_str___str": 60.0}


def test_printing_a_tensor_costs_the_idle_time_it_causes_not_the_wait_for_the_device():
    printing = lines(line(60, LINE, **PRINTED))
    assert printing.raised("BRR305")[0].saving.expected_ns == pytest.approx(0.95 * 60 * MS)
    (found,) = on_gpu(printing, busy=60, syncs=STOPS).raised("BRR305")
    assert found.saving.expected_ns == pytest.approx(0.95 * 4 * MS)
    assert not on_gpu(printing, busy=60, syncs=(("cudaStreamSynchronize", 1.0, 1 * MS, (LINE,)),)).raised("BRR305")


def test_a_write_that_the_profiled_steps_had_not_may_hide_behind_kernels():
    (found,) = on_gpu(lines(line(10, LINE, torch__serialization__save=10.0)), busy=60).raised("BRR304")
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx(9.5 * MS)


def test_a_line_that_waits_for_the_device_does_not_stand_by_itself():
    waits = lines(line(50, LINE, waiting=True), facts=Facts(other_load=0.0))
    waits.extra["host"] = (host(30, LINE),)
    assert waits.raised("BRR315")
    (found,) = on_gpu(waits, busy=60).raised("BRR315")
    assert found.saving.expected_ns <= 30 * MS
    assert not on_gpu(waits, busy=60, syncs=STOPS).raised("BRR315")


def test_collecting_garbage_beside_kernels_is_free():
    collecting = Case(facts=Facts(gc_span=LINE, gc_ns_per_step=20 * MS), extra={"host": (host(5),)})
    assert collecting.raised("BRR306")[0].saving.expected_ns == pytest.approx(19 * MS)
    assert on_gpu(collecting, busy=60).raised("BRR306")[0].saving.expected_ns == pytest.approx(0.95 * 5 * MS)


def test_a_loop_costs_the_idle_time_of_its_ops_not_what_was_sampled_there():
    tiny = op("add", (8, 8), ms=10, calls=1000, floor_ns=0.0)
    case = lines(line(80, LINE), ops=(tiny,))
    assert case.raised("BRR301")[0].evidence["python_time"].value == 70 * MS
    (found,) = on_gpu(case, busy=60).raised("BRR301")
    assert found.saving.ceiling_ns == 10 * MS


def test_a_step_of_tiny_ops_is_launch_bound_there_and_not_told_twice():
    spread = tuple(op("add", (8, 8), ms=10, where=(), calls=9000, floor_ns=0.0) for _ in range(8))
    assert Case(ops=spread).raised("BRR301")
    assert not on_gpu(Case(ops=spread), busy=10).raised("BRR301")


def test_threads_of_a_host_that_only_launches_are_nobodys_business():
    case = overhead.threads(16)
    assert case.raised("BRR309") and not on_gpu(case, busy=10).raised("BRR309")


def test_fresh_memory_is_filled_by_kernels_there():
    case = overhead.deterministic()
    ms = case.raised("BRR308")[0].saving.ceiling_ns
    fills, case.ops = case.ops, tuple(replace(each, ns=1.0) for each in case.ops)
    (found,) = on_gpu(case, *fills, busy=98).raised("BRR308")
    assert found.saving.ceiling_ns == pytest.approx(ms), "though the device idles for 2 ms alone"


def test_a_graph_that_no_backward_uses_costs_the_hosts_idle_time_and_no_pages():
    case = waste.inference()
    assert case.raised("BRR107")
    assert not on_gpu(case, busy=99).raised("BRR107")


def test_findings_of_rare_steps_are_not_bound_by_the_idle_time_of_usual_ones():
    case = data.epochs()
    (found,) = case.raised("BRR404")
    case.step = replace(case.step, mean_ns=case.ms * MS + 2 * found.saving.ceiling_ns)
    assert on_gpu(case, busy=100).raised("BRR404")[0].saving.ceiling_ns > 0.9 * found.saving.ceiling_ns
