"""Op groups: what belongs together, where a backward op comes from, and what it must cost at least."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.ledger.host.host_ops import host_ops
from gobrrr.ledger.host.places import replay
from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.ledger.ops.op_groups import Calls, op_groups
from gobrrr.ledger.ops.pricing import ELSEWHERE, Prices, dtype_of
from gobrrr.recording.model.columns import numbered
from gobrrr.recording.trace_files.categories import is_communication
from tests.support import timelines
from tests.support.handmade import machine
from tests.support.timelines import MS, US, Timeline

DISPATCH = 1000.0
COPY = 1 << 28
KINDS = (("aten::mm", "compute"), ("aten::add", "bandwidth"))


def calls(timeline: Timeline, folder: Path, prices: Prices | None = None, **changes: Any) -> Calls:
    recording = timeline.recording(folder, **changes)
    window = recording.window("profile")
    assert window is not None and recording.trace is not None
    places = replay(window.lines, window.offset)
    host = host_ops(recording, window, recording.trace, places)
    return op_groups(host, recording.trace, places, prices or Prices(machine(), 1, "highest"), DISPATCH, {"SGD": 1e6})


def by_name(timeline: Timeline, folder: Path) -> dict[str, OpGroup]:
    return {group.name: group for group in calls(timeline, folder).groups}


def linear(timeline: Timeline, line: int, sequence: int, ns: int = 50 * US) -> None:
    """As torch records it: linear and t see the number that t's node takes, addmm makes the next one."""
    timeline.line(line)
    with timeline.module("Net"), timeline.op("aten::linear", (64, 512), (256, 512), (256,), sequence=sequence):
        timeline.leaf("aten::t", US, (256, 512), sequence=sequence)
        with timeline.op("aten::addmm", (256,), (64, 512), (512, 256), sequence=sequence + 1):
            timeline.run(ns)
            timeline.leaf("aten::copy_", 2 * US, (64, 256), (64, 256))


def node(timeline: Timeline, name: str, sequence: int, ns: int = 50 * US) -> None:
    """A node of the backward pass."""
    args = {"sequence": sequence, "is_backward": True}
    with timeline.op(f"autograd::engine::evaluate_function: {name}", **args), timeline.op(name, **args):
        timeline.leaf("aten::mm", ns, (64, 256), (256, 512))


def net(timeline: Timeline) -> None:
    linear(timeline, 20, 5)
    linear(timeline, 21, 7)
    timeline.line(30)
    with timeline.backward():
        node(timeline, "AddmmBackward0", 8)
        node(timeline, "TBackward0", 7)
        node(timeline, "AddmmBackward0", 6)
        node(timeline, "AccumulateGrad", -1)
    with timeline.update():
        timeline.run(US)


def window_of(*steps: Any) -> Timeline:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for step in steps:
            step(timeline)
    return timeline


def test_every_flop_is_counted_once(tmp_path: Path) -> None:
    """linear calls addmm, addmm copies its bias: the work is addmm's."""
    groups = calls(window_of(net, net), tmp_path).groups
    assert sum(g.flops or 0 for g in groups if g.phase == "forward") == 2 * 2 * 64 * 512 * 256
    named = {g.name: g for g in groups if g.phase == "forward"}
    assert named["aten::linear"].flops is None and named["aten::linear"].bound is None
    assert named["aten::addmm"].bound == "compute"
    assert named["aten::copy_"].flops == 0 and named["aten::copy_"].bytes == 0
    assert named["aten::t"].bound is not None, "a view is known to cost nothing"


def test_groups_are_per_step_and_by_line(tmp_path: Path) -> None:
    groups = [g for g in calls(window_of(net, net), tmp_path).groups if g.name == "aten::addmm"]
    assert [(g.where[0].line, g.calls, g.ns) for g in groups] == [(20, 1.0, 50 * US), (21, 1.0, 50 * US)]
    assert {g.parents for g in groups} == {("aten::linear",)}
    assert [g.order for g in groups] == sorted(g.order for g in groups)


def test_backward_ops_belong_to_the_line_of_their_forward(tmp_path: Path) -> None:
    groups = calls(window_of(net), tmp_path).groups
    nodes = [(g.name.split(": ")[1], g.where[0].line) for g in groups if g.name.startswith("autograd")]
    assert nodes == [("AddmmBackward0", 21), ("TBackward0", 21), ("AddmmBackward0", 20), ("AccumulateGrad", 30)]
    products = [(g.where[0].line, g.calls) for g in groups if g.name == "aten::mm"]
    assert sorted(products) == [(20, 1.0), (21, 1.0), (21, 1.0), (30, 1.0)], "what runs inside a node inherits its line"


def test_the_next_steps_nodes_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    def step(first: int, line: int) -> Any:
        def run(timeline: Timeline) -> None:
            linear(timeline, line, first)
            with timeline.backward():
                node(timeline, "AddmmBackward0", first + 1)
            timeline.boundary()

        return run

    groups = calls(window_of(step(5, 20), step(7, 21)), tmp_path).groups
    assert {g.where[0].line for g in groups if g.name == "aten::mm"} == {20, 21}


def test_a_recomputed_forward_makes_no_origins(tmp_path: Path) -> None:
    """Checkpointing runs forward ops again inside a node, with new numbers and at the backward's line."""

    def step(timeline: Timeline) -> None:
        timeline.line(20)
        timeline.leaf("CheckpointFunction", US, sequence=5)
        timeline.line(30)
        args = {"sequence": 5, "is_backward": True}
        with (
            timeline.backward(),
            timeline.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", **args),
        ):
            timeline.leaf("aten::addmm", 9 * US, (8,), (8, 8), (8, 8), sequence=6)
            with timeline.op("autograd::engine::evaluate_function: AddmmBackward0", sequence=6, is_backward=True):
                timeline.leaf("aten::mm", 9 * US, (8, 8), (8, 8))
        timeline.boundary()

    groups = calls(window_of(step), tmp_path).groups
    assert {g.where[0].line for g in groups if g.phase == "backward"} == {20}


def test_what_runs_again_belongs_to_the_line_that_asked_for_it(tmp_path: Path) -> None:
    """A block's line 40 is called at line 20; in backward, called at line 30, it runs again inside its node."""
    product = ((8,), (8, 8), (8, 8))

    def step(timeline: Timeline) -> None:
        timeline.line(20)
        with timeline.frame("block", 40):
            timeline.leaf("aten::addmm", 9 * US, *product, sequence=5)
        timeline.line(30)
        node = timeline.op("autograd::engine::evaluate_function: AddmmBackward0", sequence=5, is_backward=True)
        with timeline.backward(), node:
            timeline.run(US)
            with timeline.frame("block", 40):
                timeline.leaf("aten::addmm", 9 * US, *product, sequence=6)
            timeline.leaf("aten::mm", 9 * US, (8, 8), (8, 8))
        timeline.boundary()

    groups = calls(window_of(step), tmp_path).groups
    assert [[at.line for at in g.where] for g in groups if g.recomputed] == [[20]]
    assert [[at.line for at in g.where] for g in groups if g.name == "aten::mm"] == [[40, 20]]


def test_gradients_of_gradients_run_nothing_again_though_transforms_reach_below_autograd(tmp_path: Path) -> None:
    """As torch records vmap(grad(...)): a node's own op counts a node, and what that becomes for the batch has none."""

    def step(timeline: Timeline) -> None:
        linear(timeline, 20, 5)
        timeline.line(30)
        args = {"sequence": 6, "is_backward": True}
        with timeline.backward(), timeline.op("AddmmBackward0", **args), timeline.op("aten::mm", sequence=9):
            timeline.leaf("aten::bmm", 50 * US, (8, 8, 8), (8, 8, 8))
        timeline.boundary()

    groups = calls(window_of(step), tmp_path).groups
    assert {g.phase for g in groups if g.name == "aten::bmm"} == {"backward"}
    assert not [g.name for g in groups if g.recomputed]


def test_gradients_of_gradients_run_nothing_again_beside_a_pass_that_asks_for_none(tmp_path: Path) -> None:
    """As torch records autograd.grad(create_graph=True) and then backward: what makes a tensor counts no node."""

    def step(timeline: Timeline) -> None:
        timeline.line(20)
        timeline.leaf("aten::tanh", 9 * US, (8, 8), sequence=5)
        timeline.line(30)
        args = {"sequence": 5, "is_backward": True}
        with timeline.backward(), timeline.op("autograd::engine::evaluate_function: TanhBackward0", **args):
            with timeline.op("TanhBackward0", **args):
                timeline.leaf("aten::zeros", US)
                timeline.leaf("aten::tanh_backward", 9 * US, (8, 8), (8, 8), sequence=6)
        timeline.line(40)
        args = {"sequence": 6, "is_backward": True}
        with timeline.backward(), timeline.op("autograd::engine::evaluate_function: TanhBackwardBackward0", **args):
            with timeline.op("TanhBackwardBackward0", **args):
                timeline.leaf("aten::mul", 9 * US, (8, 8), (8, 8))
        timeline.boundary()

    groups = calls(window_of(step), tmp_path).groups
    assert {g.phase for g in groups if g.name == "aten::tanh_backward"} == {"backward"}
    assert not [g.name for g in groups if g.recomputed]


@pytest.mark.parametrize(("times", "counted"), [(0.9, True), (1.1, False)])
def test_what_ran_far_above_its_ceiling_ran_elsewhere(times: float, counted: bool, tmp_path: Path) -> None:
    """A linear layer on the meta device takes as long as torch needs to look at the shapes."""
    floors = {"aten::mm": 1e9 * 2 * 512**3 / 100e9, "aten::add": 1e9 * 12 * (1 << 22) / 20e9}

    def step(timeline: Timeline) -> None:
        for share in (0.5, 1.5):  # one call that ran late says nothing: all of them together do
            ns = {name: int(share * floors[name] / ELSEWHERE[bound] / times) for name, bound in KINDS}
            timeline.leaf("aten::mm", ns["aten::mm"], (512, 512), (512, 512))
            timeline.leaf("aten::add", ns["aten::add"], (1 << 22,), (1 << 22,))
        timeline.leaf("aten::mm", 10 * MS, (512, 256), (256, 512))
        timeline.boundary()

    groups = calls(window_of(step), tmp_path).groups
    assert [g.bound is not None for g in groups] == [counted, counted, True]
    assert [(g.flops is not None, g.floor_ns > 0) for g in groups[:2]] == [(counted, counted)] * 2
    assert [g.elsewhere for g in groups] == [not counted, not counted, False]


def test_a_floor_is_no_longer_than_the_op(tmp_path: Path) -> None:
    def step(timeline: Timeline) -> None:
        timeline.leaf("aten::mm", MS, (512, 512), (512, 512))
        timeline.leaf("aten::add", MS, (1 << 18,), (1 << 18,))
        timeline.boundary()

    named = by_name(window_of(step), tmp_path)
    assert named["aten::mm"].floor_ns == named["aten::mm"].ns == MS
    assert named["aten::mm"].dispatch_ns == 0
    added = named["aten::add"]
    assert added.bound == "bandwidth" and added.bytes == 3 * 4 * (1 << 18)
    assert added.floor_ns == pytest.approx(1e9 * added.bytes / 20e9), "beyond 1 MiB this machine copies 20 GB/s"
    assert added.dispatch_ns == DISPATCH


def test_an_ops_floor_goes_to_the_ops_that_do_its_work(tmp_path: Path) -> None:
    """addmm is priced whole; where ops inside it take the time, what its floor has over its own time is theirs."""

    def step(timeline: Timeline) -> None:
        with timeline.op("aten::addmm", (64, 256), (64, 512), (512, 256)):
            timeline.run(20 * US)
            timeline.leaf("aten::copy_", 30 * US, (64, 256), (64, 256))
            timeline.leaf("aten::copy_", 300 * US, (64, 256), (64, 256))
        timeline.boundary()

    named = by_name(window_of(step), tmp_path)
    addmm, copies = named["aten::addmm"], named["aten::copy_"]
    floor = 1e9 * 2 * 64 * 512 * 256 / 100e9
    assert addmm.flops == 2 * 64 * 512 * 256
    assert addmm.floor_ns == 20 * US
    assert copies.floor_ns == pytest.approx(floor - 20 * US)
    assert (copies.bound, copies.flops, copies.bytes) == ("compute", 0, 0)


def test_an_op_that_is_not_modelled_has_neither_floor_nor_flops(tmp_path: Path) -> None:
    named = by_name(window_of(lambda t: (t.leaf("mine::fused", MS, (8, 8)), t.boundary())), tmp_path)
    op = named["mine::fused"]
    assert (op.flops, op.bytes, op.bound, op.floor_ns, op.leaf) == (None, None, None, 0.0, True)


def test_callers_count_the_ops_that_they_call(tmp_path: Path) -> None:
    found = calls(window_of(net), tmp_path)
    children = {(g.name, g.where[0].line): n for g, n in zip(found.groups, found.children, strict=True)}
    assert children["aten::linear", 20] == 2
    assert children["aten::addmm", 20] == 1
    assert children["aten::t", 20] == 0
    linear_ = next(g for g in found.groups if g.name == "aten::linear")
    assert linear_.dispatch_ns == min(linear_.ns, 3 * DISPATCH)


def test_where_a_device_works_nothing_is_priced(tmp_path: Path) -> None:
    groups = calls(window_of(net), tmp_path, Prices.none(machine())).groups
    assert all(g.flops is None and g.bound is None and g.floor_ns == 0 for g in groups)


def test_a_fused_update_over_many_tensors_is_priced_by_what_the_optimizer_holds(tmp_path: Path) -> None:
    """torch records no shapes of more than 30 tensors."""

    def step(timeline: Timeline) -> None:
        with timeline.update():
            timeline.leaf("aten::_fused_sgd_", MS, ())

    op = by_name(window_of(step), tmp_path)["aten::_fused_sgd_"]
    assert op.bytes is not None and op.bytes >= 4e6


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [
        (("float", "c10::BFloat16"), "fp32"), (("long int", "c10::Half"), "fp16"), (("Scalar", "long int"), "int64"),
        (("bool", "unsigned char"), "int8"), (("c10::Float8_e5m2fnuz",), "fp8"), (("", "Scalar"), "fp32"), ((), "fp32"),
    ],
)  # fmt: skip
def test_the_dtype_of_an_op_by_its_inputs(inputs: tuple[str, ...], dtype: str) -> None:
    assert dtype_of(inputs) == dtype


def test_fp8_without_units_has_the_rate_of_bf16() -> None:
    slow = machine(bf16=400)
    assert Prices(slow, 2, "highest").flop_rate("fp8") == slow.flop_rate("bf16", 2)


def test_the_precision_that_is_set_chooses_the_ceiling() -> None:
    slow = machine(fp32=50.0, fp32_medium=100.0, bf16=200.0)
    assert Prices(slow, 1, "highest").flop_rate("fp32") == 50e9
    assert Prices(slow, 1, None).flop_rate("fp32") == 50e9
    assert Prices(slow, 1, "medium").flop_rate("fp32") == 100e9
    assert Prices(slow, 2, "medium").flop_rate("bf16") == 400e9
    assert Prices(slow, 1, "highest").flop_rate("int64") == 50e9, "no floating input: fp32"
    assert Prices(slow, 1, "highest").flop_rate("int8") == 50e9, "int8 was not measured here"


def test_collectives_are_known_by_name() -> None:
    carried = ("c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce", "mpi:bcast", "record_param_comms")
    assert all(map(is_communication, carried))
    assert not is_communication("aten::add_")


def test_an_empty_window_has_no_groups(tmp_path: Path) -> None:
    timeline = window_of(lambda t: (t.run(MS), t.boundary()))
    found = calls(timeline, tmp_path)
    assert (found.groups, found.children) == ([], [])


def test_rows_of_columns_are_told_apart_whatever_their_range() -> None:
    """-1 stands for what is not known; and more than 64 bits hold, where ranges are multiplied."""
    number, first = numbered([np.array([0, 1, 0, 0]), np.array([0, 0, -1, 0])])
    assert (number.tolist(), first.tolist()) == ([0, 1, 2, 0], [0, 1, 2])
    far = 1 << 40
    number, _ = numbered([np.array(column) for column in ([0, far, far, 0, 0], [far, far, 0, 0, far], [1, 0, 1, 1, 1])])
    assert number.tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(("file", "line", "in_a_row"), [("train.py", 21, 3), ("train.py", 30, 1), ("lib.py", 21, 1)])
def test_in_a_row_are_calls_of_lines_below_each_other_in_one_file(
    file: str, line: int, in_a_row: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(timeline: Timeline) -> None:
        for _ in range(3):
            timeline.line(20)
            timeline.leaf("aten::mul", US, (64, 64), (64, 64))
            with monkeypatch.context() as patch:
                patch.setattr(timelines, "FILE", file)
                with timeline.frame("helper", line):
                    timeline.line(line, function="helper")
                    timeline.leaf("aten::add", US, (64, 64), (64, 64))
        timeline.boundary()

    groups = by_name(window_of(step), tmp_path)
    assert groups["aten::mul"].in_a_row == groups["aten::add"].in_a_row == in_a_row


def test_a_list_that_ranks_sum_counts_as_one_tensor_of_all_its_elements(tmp_path: Path) -> None:
    def summed(timeline: Timeline) -> None:
        timeline.leaf("c10d::allreduce_", US, ((3, 4), (5,)), ())
        timeline.leaf("c10d::allgather_", US, (((3, 4), (3, 4)),), (3, (4,)))
        timeline.leaf("aten::cat", US, ((3, 4), (5,)), ())
        with timeline.update():
            timeline.run(US)

    groups = by_name(window_of(summed), tmp_path)
    assert groups["c10d::allreduce_"].shapes == ((17,), ())
    assert groups["c10d::allgather_"].shapes == ((24,), (4,))
    assert groups["aten::cat"].shapes == ((), ())
