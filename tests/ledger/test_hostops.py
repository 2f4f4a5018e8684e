"""The profiled steps' ops: whose thread and step they are of, how they nest, and which phase they belong to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.ledger.host.host_ops import HostOps, host_ops
from gobrrr.ledger.host.places import replay
from gobrrr.ledger.steps.step_windows import OWN_WORK, after_watching
from gobrrr.recording.model import event_kinds
from tests.support.timelines import MS, PID, US, Timeline


def rows(timeline: Timeline, folder: Path, blind: bool = False, **changes: Any) -> HostOps:
    recording = timeline.recording(folder, **changes)
    window = recording.window("profile")
    assert window is not None and recording.trace is not None
    return host_ops(recording, window, recording.trace, replay(None if blind else window.lines, window.offset))


def phases(host: HostOps) -> list[tuple[str, str]]:
    return [(host.name(row), host.phase[row]) for row in range(len(host))]


def training_step(timeline: Timeline, lost: bool = False) -> None:
    with timeline.wait():
        timeline.leaf("aten::stack", 10 * US)
    timeline.line(2)
    with timeline.module("Net"), timeline.op("aten::linear"):
        timeline.leaf("aten::addmm", 50 * US)
    timeline.leaf("aten::mse_loss", 5 * US)
    timeline.line(3)
    with timeline.backward(), timeline.op("autograd::engine::evaluate_function: AddmmBackward0"):
        timeline.leaf("aten::mm", 60 * US)
    timeline.line(4)
    timeline.leaf("aten::linalg_vector_norm", 2 * US)
    with timeline.update(lost=lost):
        timeline.leaf("aten::_foreach_add_", 8 * US)


STEP = [
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data"),
    ("aten::stack", "data"),
    ("aten::linear", "forward"),
    ("aten::addmm", "forward"),
    ("aten::mse_loss", "loss"),
    ("autograd::engine::evaluate_function: AddmmBackward0", "backward"),
    ("aten::mm", "backward"),
    ("aten::linalg_vector_norm", "other"),
    ("Optimizer.step#SGD.step", "optimizer"),
    ("aten::_foreach_add_", "optimizer"),
]


def watched(step: Callable[[Timeline], None], steps: int = 3) -> Timeline:
    timeline = Timeline()
    timeline.plain_steps(MS, MS, MS)
    with timeline.window(), timeline.frame("main"):
        for _ in range(steps):
            step(timeline)
    return timeline


def test_every_phase_of_a_training_step_is_told(tmp_path: Path) -> None:
    assert phases(rows(watched(training_step), tmp_path)) == STEP * 3


def test_backward_on_a_thread_of_its_own_is_of_the_step(tmp_path: Path) -> None:
    """As for a device: autograd runs it on the device's thread while the main one waits; of two devices the busier."""

    def step(timeline: Timeline) -> None:
        timeline.leaf("aten::addmm", 50 * US)
        with timeline.backward():
            for thread, ns in ((98, 10 * US), (99, 60 * US)):
                with timeline.op("autograd::engine::evaluate_function: AddmmBackward0", thread=thread):
                    timeline.leaf("aten::mm", ns, thread=thread)
        timeline.leaf("aten::of_another_thread", US, thread=97)
        with timeline.update():
            timeline.leaf("aten::_foreach_add_", 8 * US)

    host = rows(watched(step), tmp_path)
    backward = [("autograd::engine::evaluate_function: AddmmBackward0", "backward"), ("aten::mm", "backward")]
    update = [("Optimizer.step#SGD.step", "optimizer"), ("aten::_foreach_add_", "optimizer")]
    assert phases(host) == [("aten::addmm", "other"), *backward, *update] * 3
    assert {int(host.ops.dur[row]) for row in range(len(host)) if host.name(row) == "aten::mm"} == {60 * US}


@pytest.mark.parametrize(("longest", "kept"), [(1.49, 4), (1.51, 3)])
def test_a_step_half_as_long_again_as_the_others_is_unusual(longest: float, kept: int, tmp_path: Path) -> None:
    lengths = iter((MS, MS, int(longest * MS), MS))

    def step(timeline: Timeline) -> None:
        timeline.leaf("aten::mm", next(lengths) - US)
        with timeline.update():
            timeline.leaf("aten::_foreach_add_", US)

    timeline = watched(step, steps=4)
    assert len(rows(timeline, tmp_path).spans) == kept


def test_the_update_that_the_window_ends_in_has_its_annotation(tmp_path: Path) -> None:
    """torch closes Optimizer.step after the hook in which the window ends: the profiler never writes it."""
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for n in range(3):
            training_step(timeline, lost=n == 2)
    host = rows(timeline, tmp_path, raw_facts=({"optimizers": [{"id": 0, "kind": "SGD"}]},))
    assert phases(host) == STEP * 3
    assert [
        host.name(int(host.parent[row])) for row in range(len(host)) if host.name(row) == "aten::_foreach_add_"
    ] == ["Optimizer.step#SGD.step"] * 3
    assert int(host.own.sum()) == int(host.ops.dur[host.parent < 0].sum())


@pytest.mark.parametrize("facts", [(), ({"optimizers": [{"id": 5, "kind": "Adam"}, "hostile"]},)])
def test_a_lost_update_of_an_unknown_optimizer_is_an_update_all_the_same(tmp_path: Path, facts: Any) -> None:
    timeline = Timeline()
    with timeline.window():
        training_step(timeline, lost=True)
    host = rows(timeline, tmp_path, raw_facts=facts)
    assert phases(host)[-2:] == [("Optimizer.step#Optimizer.step", "optimizer"), ("aten::_foreach_add_", "optimizer")]


def test_forward_and_backward_in_a_closure_are_no_update(tmp_path: Path) -> None:
    """LBFGS, and every trainer that hands the optimizer a closure."""

    def step(timeline: Timeline) -> None:
        with timeline.update():
            with timeline.module("Net"):
                timeline.leaf("aten::addmm", 50 * US)
            with timeline.backward(), timeline.op("autograd::engine::evaluate_function: AddmmBackward0"):
                timeline.leaf("aten::mm", 60 * US)
            timeline.leaf("aten::add_", 8 * US)

    named = dict(phases(rows(watched(step), tmp_path)))
    assert named["aten::addmm"] == "forward"
    assert named["aten::mm"] == "backward"
    assert named["aten::add_"] == "optimizer"


def test_a_recomputed_forward_is_backward(tmp_path: Path) -> None:
    def step(timeline: Timeline) -> None:
        with timeline.backward(), timeline.op("autograd::engine::evaluate_function: CheckpointFunctionBackward"):
            with timeline.module("Block"):
                timeline.leaf("aten::addmm", 50 * US)
            timeline.leaf("aten::mm", 50 * US)
        with timeline.update():
            pass

    assert set(dict(phases(rows(watched(step), tmp_path)))) >= {"aten::addmm", "aten::mm"}
    assert {phase for name, phase in phases(rows(watched(step), tmp_path)) if name.startswith("aten")} == {"backward"}


def test_what_follows_the_forward_of_an_inference_step_is_no_loss(tmp_path: Path) -> None:
    def step(timeline: Timeline) -> None:
        with timeline.module("Net"):
            timeline.leaf("aten::addmm", 50 * US)
        timeline.leaf("aten::argmax", 5 * US)
        timeline.boundary()

    assert phases(rows(watched(step), tmp_path)) == [("aten::addmm", "forward"), ("aten::argmax", "other")] * 3


def test_without_a_line_log_the_backward_divides_the_step(tmp_path: Path) -> None:
    """Another tracer was active: what comes before a backward is taken for forward."""
    named = dict(phases(rows(watched(training_step), tmp_path, blind=True)))
    assert named["aten::addmm"] == named["aten::mse_loss"] == "forward"
    assert named["aten::mm"] == "backward"
    assert named["aten::linalg_vector_norm"] == "other"
    assert named["aten::stack"] == "data"
    assert named["aten::_foreach_add_"] == "optimizer"


def test_an_annotation_of_the_users_gives_its_inside_no_phase(tmp_path: Path) -> None:
    def step(timeline: Timeline) -> None:
        with timeline.op("my step", category="user_annotation"):
            training_step(timeline)

    assert [pair for pair in phases(rows(watched(step, steps=1), tmp_path)) if pair[0] != "my step"] == STEP


def test_only_ops_of_the_main_loops_steps_are_in(tmp_path: Path) -> None:
    """An evaluation between two steps of the window is another loop's."""
    timeline = Timeline()
    timeline.plain_steps(MS, MS, MS)
    with timeline.window(), timeline.frame("main"):
        training_step(timeline)
        for _ in range(5):
            timeline.leaf("aten::conv2d", 20 * US)
            timeline.note(event_kinds.BOUNDARY, 9, 2)
        training_step(timeline)  # from the last forward of the evaluation: nobody's step
        training_step(timeline)
    host = rows(timeline, tmp_path)
    assert host.num_steps == 2
    assert phases(host) == STEP * 2


def test_steps_that_another_process_held_up_are_left_out(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.plain_steps(MS, MS, MS)
    with timeline.window(), timeline.frame("main"):
        for n in range(6):
            training_step(timeline)
            if n == 2:
                timeline.leaf("aten::mm", 50 * MS)
    assert rows(timeline, tmp_path).num_steps == 5


def test_our_own_work_in_the_hook_that_ends_a_step_is_no_part_of_the_next(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for _ in range(3):
            timeline.line(10, 50 * US)
            timeline.leaf("aten::mm", 50 * US)
            timeline.boundary()
            timeline.run(200 * US)  # the budget is looked at
    host = rows(timeline, tmp_path)
    assert (host.spans[:, 1] - host.spans[:, 0]).tolist() == [100 * US] * 3
    blind = rows(timeline, tmp_path, blind=True)
    assert (blind.spans[1:, 1] - blind.spans[1:, 0]).tolist() == [300 * US] * 2, "without a log nobody knows"


def test_what_a_library_does_after_the_step_is_kept_but_for_as_long_as_our_work_may_take() -> None:
    spans = np.array([[0, 9 * MS], [10 * MS, 20 * MS], [20 * MS, 20 * MS + 7]])
    lines, ops = np.array([12 * MS, 13 * MS]), np.array([MS // 5])
    cut = after_watching(spans, lines, ops)
    assert cut.tolist() == [[MS // 5, 9 * MS], [10 * MS + OWN_WORK, 20 * MS], [20 * MS + 7, 20 * MS + 7]]


def test_steps_of_no_length_are_steps(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window():
        for us in (0, 0, 0, 1):
            with timeline.wait():
                timeline.run(us * US)
            timeline.boundary()
    assert rows(timeline, tmp_path).num_steps == 4


def test_a_long_wait_makes_no_step_unusual(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.plain_steps(MS, MS, MS)
    with timeline.window(), timeline.frame("main"):
        for n in range(6):
            with timeline.wait():
                timeline.run(50 * MS * (n == 2))
            training_step(timeline)
    assert rows(timeline, tmp_path).num_steps == 6


def test_without_boundaries_the_window_is_cut_evenly(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        training_step(timeline)
    host = rows(timeline, tmp_path, loops=timeline.recording(tmp_path).loops, events=np.zeros((0, 4), np.int64))
    assert host.num_steps == 1
    assert host.end - host.begin == timeline.ended - timeline.began


def test_other_threads_are_left_out_and_the_main_one_is_found(tmp_path: Path) -> None:
    timeline = watched(training_step)
    for event in [dict(event, tid=PID + 1, name="aten::pin_memory") for event in timeline.trace]:
        timeline.trace.append(event)
    assert phases(rows(timeline, tmp_path)) == STEP * 3
    for event in timeline.trace:
        event["tid"] += 1000
        event["dur"] = event["dur"] if event["name"] != "aten::pin_memory" else "@0@"
    assert phases(rows(timeline, tmp_path)) == STEP * 3, "no thread is called like the process: the busiest"


def test_an_empty_trace_has_no_rows(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.plain_steps(MS, MS)
    with timeline.window():
        timeline.run(MS)
        timeline.boundary()
    host = rows(timeline, tmp_path)
    assert len(host) == 0 and host.num_steps == 1


def test_without_stacks_and_optimizer_forward_begins_again_with_what_a_backward_answers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.machine.model.machine import UNKNOWN
    from gobrrr.pipeline.traces import diagnosed
    from gobrrr.recording.trace_files.limits import DEFAULT
    from gobrrr.recording.trace_files.sources import Source

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    with torch.profiler.profile(record_shapes=True) as profiler:
        for _ in range(6):
            model(torch.ones(4, 8)).mean().backward()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    report = diagnosed(Source(str(tmp_path / "trace.json")), UNKNOWN, DEFAULT)
    calls = {op.phase: op.calls for op in report.ops if op.name == "aten::addmm"}
    assert calls == {"forward": 12}
