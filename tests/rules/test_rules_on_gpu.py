"""Rules where an accelerator works: what they ask of kernels, what of its idle time, what of neither."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceLedger, DeviceMemory
from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.recording.model.facts import CompileFacts, Facts, ModuleFacts
from tests.rules import test_rules_bandwidth as bandwidth
from tests.rules import test_rules_beside as beside
from tests.rules import test_rules_compute_frozen as frozen
from tests.rules import test_rules_compute_waste as waste
from tests.rules import test_rules_data as data
from tests.rules import test_rules_overhead as overhead
from tests.rules import test_rules_repeats as repeats
from tests.rules import test_rules_updates as updates
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op
from tests.support.rule_lines import host, line, lines


def device(busy: float = 90.0, **fields: Any) -> DeviceLedger:
    """A device that works `busy` of 100 ms."""
    given = {
        "name": "NVIDIA A100-SXM4-40GB",
        "busy_ns": busy * MS,
        "idle_ns": (100 - busy) * MS,
        "span_busy_share": busy / 100,
        **fields,
    }
    return DeviceLedger(**given)


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


def test_what_the_host_does_beside_kernels_brings_back_the_idle_time_at_most():
    (found,) = on_gpu(lines(line(40, LINE, torch__serialization__save=40.0)), busy=95).raised("BRR304")
    assert found.saving.ceiling_ns == 5 * MS and found.saving.expected_ns <= 5 * MS


def test_a_line_that_waits_for_the_device_does_not_stand_by_itself():
    waits = lines(line(50, LINE, waiting=True), facts=Facts(other_load=0.0))
    waits.extra["host"] = (host(30, LINE),)
    assert waits.raised("BRR315")
    (found,) = on_gpu(waits, busy=60).raised("BRR315")
    assert found.saving.expected_ns <= 30 * MS
    assert not on_gpu(waits, busy=60, syncs=STOPS).raised("BRR315")


def test_collecting_garbage_beside_kernels_is_free():
    collecting = Case(facts=Facts(gc_span=LINE, gc_ns_per_step=20 * MS, gc_by_hand=1.0), extra={"host": (host(5),)})
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


def test_denormals_slow_no_unit_of_an_accelerator():
    case = overhead.subnormal()
    assert case.raised("BRR310") and not on_gpu(case, busy=10).raised("BRR310")


def test_fresh_memory_is_filled_by_kernels_there():
    case = overhead.deterministic()
    ms = case.raised("BRR308")[0].saving.ceiling_ns
    fills, case.ops = case.ops, tuple(replace(each, ns=1.0) for each in case.ops)
    (found,) = on_gpu(case, *fills, busy=98).raised("BRR308")
    assert found.saving.ceiling_ns == pytest.approx(ms), "though the device idles for 2 ms alone"


def test_a_graph_that_no_backward_uses_costs_the_hosts_idle_time_and_no_pages():
    case = waste.inference()
    assert case.raised("BRR107")
    (found,) = on_gpu(case, busy=99).raised("BRR107")
    assert found.severity == "note" and found.cost_bytes and found.saving.ceiling_ns <= MS, "the memory alone is told"


def test_findings_of_rare_steps_are_not_bound_by_the_idle_time_of_usual_ones():
    case = data.epochs()
    (found,) = case.raised("BRR404")
    case.step = replace(case.step, mean_ns=case.ms * MS + 2 * found.saving.ceiling_ns)
    assert on_gpu(case, busy=100).raised("BRR404")[0].saving.ceiling_ns > 0.9 * found.saving.ceiling_ns


def launching(case: Case, busy: float, idle_ms: float = 0.0) -> Case:
    """The same program on a device: what its ops took their kernels take, and the host's ops idle for `idle_ms` in all
    (what takes no time launches nothing)."""
    kernels = tuple(group for group in case.ops if group.ns)
    case.ops = tuple(replace(group, ns=idle_ms * MS / len(case.ops), flops=None, bound=None) for group in case.ops)
    return on_gpu(case, *kernels, busy=busy)


def test_an_evaluation_in_every_step_is_told_there_with_its_kernels_and_the_idle_time_at_it():
    """All but nothing of it is the host's idle time, which is 5 ms in all."""
    evaluates = beside.training(op("addmm", (8, 8), ms=20, where=(beside.INSIDE, beside.EVALUATE, beside.MAIN)))
    assert evaluates.raised("BRR312")[0].saving.ceiling_ns == pytest.approx(20 * MS)
    waits = line(80, beside.EVALUATE, beside.MAIN)
    evaluates.extra["lines"] = (waits,)  # where the host waits for what was launched before
    (found,) = launching(evaluates, busy=95, idle_ms=5).raised("BRR312")
    assert found.where[0] == beside.EVALUATE and found.saving.ceiling_ns == pytest.approx(21 * MS)
    assert not launching(beside.training(), busy=95).raised("BRR312")


def test_a_forward_that_is_made_twice_costs_its_kernels_and_not_the_wait_of_its_line():
    case = waste.twice()
    case.extra["lines"] = (line(60, OTHER_LINE, phase="forward"),)
    (found,) = launching(case, busy=90, idle_ms=3).raised("BRR108")
    assert found.saving.expected_ns == pytest.approx(0.85 * 31 * MS)


def test_one_sample_per_call_is_not_bound_by_the_idle_time_where_weights_are_what_it_reads():
    case = overhead.one_by_one((1, 24))
    (plain,) = case.raised("BRR313")
    assert on_gpu(case, overhead.READS_WEIGHTS, busy=95).raised("BRR313")[0].saving == plain.saving


DECODING = repeats.decoding(100, 101, 102, 103)


def test_a_text_that_is_read_anew_is_priced_by_kernels_and_seen_by_the_hosts_lookups():
    lookups = [replace(group, ns=0.0 if group.name.endswith("embedding") else group.ns) for group in DECODING]
    case = launching(repeats.inferring(*lookups), busy=45)
    case.ms = 50
    (found,) = case.raised("BRR314")
    assert found.saving.ceiling_ns == pytest.approx(40 * (1 - 1 / 101.5) * MS, rel=1e-6)


def test_an_optimizer_op_by_op_costs_its_kernels_and_the_idle_time_between_them():
    """What was sampled there is how long the host takes to launch it, beside other kernels or not."""
    inside = {"phase": "optimizer", "parents": ("Optimizer.step#AdamW.step",), "calls": 100.0}
    case = Case(ops=(op("addcdiv_", (1024, 1024), ms=20, **inside),), facts=Facts(optimizers=(updates.ADAM,)))
    case.extra = {"lines": (line(2, phase="optimizer"),), "host": (host(6, phase="optimizer"),)}
    (found,) = launching(case, busy=80, idle_ms=4).raised("BRR208")
    assert found.evidence["optimizer_step"].value == 30 * MS and found.holds_ns == pytest.approx(30 * MS)


def test_an_update_by_hand_is_one_there_too_and_told_once():
    """That gradients are accumulated launches nothing: only the host's side knows of it."""
    case = Case(ops=(replace(repeats.gradients(), ns=0.0), *repeats.out_of_place(calls=10)), ms=40)
    (found,) = launching(case, busy=36, idle_ms=2).raised("BRR209")
    assert found.evidence["update"].value == pytest.approx((12 + 2 * 6 / 7) * MS)
    assert not case.raised("BRR201")


def test_large_logits_are_told_by_their_bytes_where_no_fresh_page_costs_time():
    case = launching(bandwidth.logits(), busy=450)
    case.ms = 500
    (found,) = case.raised("BRR203")
    assert found.saving.expected_ns == 0 and found.cost_bytes == 3 * 1024 * 50_000 * 4


def test_code_that_compiling_left_eager_passes_over_memory_in_kernels():
    where = (LINE, OTHER_LINE)
    given_up = ModuleFacts(id=0, compiled=True, span=OTHER_LINE)
    eager = Case(ops=(op("mul", (4096, 4096), ms=30, where=where),), facts=Facts(modules=(given_up,)))
    limit = Case(ops=eager.ops, facts=Facts(compile=CompileFacts(used=True, limit_hit=True)))
    for case, code in ((eager, "BRR802"), (limit, "BRR803")):
        (plain,) = case.raised(code)
        (found,) = launching(case, busy=90).raised(code)
        assert found.saving.expected_ns == pytest.approx(0.9 * plain.saving.expected_ns)


def test_entering_graphs_beside_kernels_is_free():
    breaks = CompileFacts(used=True, num_graphs=3, graph_breaks=400, break_spans=(OTHER_LINE,))
    case = Case(facts=Facts(compile=breaks))
    assert case.raised("BRR802")[0].saving.expected_ns == pytest.approx(400 * 30 * 1000)
    assert not on_gpu(case, busy=99).raised("BRR802")


def test_a_devices_memory_that_grows_has_no_pages_to_touch():
    growing = DeviceMemory(peak=1 << 30, growth_per_step=32e6)
    (found,) = on_gpu(Case(), memory=growing).raised("BRR601")
    assert found.saving.expected_ns == 0 and found.cost_bytes == 32_000_000


def test_what_the_host_draws_for_a_frozen_part_is_no_kernel():
    (found,) = launching(frozen.tagger(), busy=90).raised("BRR113")
    assert found.saving.low_ns > 0 and found.evidence["batches_without_draws"].value == 20
    draws = frozen.tagger()
    kernels = draws.ops
    draws.ops = (op("normal_", (64, 64), ms=0.001, where=(OTHER_LINE,), order=1), *draws.ops)
    (noisy,) = on_gpu(draws, *kernels).raised("BRR113")
    assert noisy.saving.low_ns == 0


def test_a_wait_that_the_profiled_steps_had_not_may_hide_behind_kernels():
    waits = lines(replace(line(30, LINE), held=30 * MS, writing=0.0))
    (found,) = on_gpu(waits, busy=60).raised("BRR315")
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx(30 * MS)
