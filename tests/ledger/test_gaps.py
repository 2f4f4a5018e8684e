"""What runs between ops: charged to the line that ran, once, in the phase it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.ledger.host.gaps import find_gaps
from gobrrr.ledger.host.host_ops import HostOps, host_ops
from gobrrr.ledger.host.places import Places, replay
from tests.support.timelines import MS, US, Timeline, host_groups


def replayed(timeline: Timeline, folder: Path, blind: bool = False) -> tuple[HostOps, Places]:
    recording = timeline.recording(folder)
    window = recording.window("profile")
    assert window is not None and recording.trace is not None
    places = replay(None if blind else window.lines, window.offset)
    return host_ops(recording, window, recording.trace, places), places


def groups(timeline: Timeline, folder: Path, blind: bool = False) -> dict[tuple[int, str], float]:
    """Nanoseconds per step by innermost line (0 for nowhere) and phase."""
    host, places = replayed(timeline, folder, blind)
    return {(g.where[0].line if g.where else 0, g.phase): g.ns for g in host_groups(host, places)}


def test_python_between_ops_is_charged_to_its_line(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for _ in range(3):
            timeline.line(10, 30 * US)
            timeline.leaf("aten::add", 5 * US)
            timeline.line(11, 70 * US)
            timeline.run(7 * US)
            timeline.boundary()
    assert groups(timeline, tmp_path) == {(10, "other"): 30 * US, (11, "other"): 77 * US}


def test_most_time_comes_first_and_calls_inside_are_their_own_lines(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        timeline.line(10, 5 * US)
        with timeline.frame("log", 50):
            timeline.line(51, 40 * US, "log")
        timeline.run(3 * US)
        timeline.leaf("aten::add", US)
        timeline.boundary()
    host, places = replayed(timeline, tmp_path)
    found = host_groups(host, places)
    assert [(g.where[0].line, g.ns) for g in found] == [(51, 40 * US), (10, 8 * US)]
    assert [span.line for span in found[0].where] == [51, 10]


def test_a_wait_for_data_has_no_gaps_inside(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        timeline.line(10)
        with timeline.wait():
            timeline.run(MS)
            timeline.leaf("aten::stack", 10 * US)
            timeline.run(MS)
        timeline.run(5 * US)
        timeline.leaf("aten::add", US)
        timeline.boundary()
    assert groups(timeline, tmp_path) == {(10, "other"): 5 * US}


def test_gaps_inside_an_update_are_the_optimizers_from_its_first_moment_to_its_last(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        timeline.line(10)
        timeline.leaf("aten::mm", US)
        timeline.run(3 * US)
        with timeline.update():
            timeline.run(20 * US)
            timeline.leaf("aten::add_", US)
            timeline.run(5 * US)
            timeline.leaf("aten::add_", US)
            timeline.run(6 * US)
    assert groups(timeline, tmp_path) == {(10, "optimizer"): 31 * US, (10, "other"): 3 * US}


def test_gaps_inside_an_engine_node_are_its_own_self_time_and_counted_once(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        timeline.line(10)
        with timeline.backward():
            timeline.run(4 * US)
            with timeline.op("autograd::engine::evaluate_function: MmBackward0"):
                timeline.run(9 * US)
                timeline.leaf("aten::mm", 50 * US)
            timeline.run(2 * US)
            with timeline.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                timeline.run(3 * US)
        timeline.boundary()
    assert groups(timeline, tmp_path) == {(10, "backward"): 6 * US}
    host, _ = replayed(timeline, tmp_path)
    assert int(host.own.sum()) == 62 * US
    assert host.end - host.begin == 68 * US


def test_what_leads_to_the_loss_is_the_loss(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        timeline.line(10)
        with timeline.module("Net"):
            timeline.run(5 * US)
            timeline.leaf("aten::addmm", 50 * US)
            timeline.run(6 * US)
        timeline.run(2 * US)
        timeline.leaf("aten::sub", US)
        timeline.run(3 * US)
        timeline.leaf("aten::mean", US)
        timeline.run(4 * US)
        with timeline.backward(), timeline.op("autograd::engine::evaluate_function: MeanBackward0"):
            timeline.run(US)
        timeline.boundary()
    assert groups(timeline, tmp_path) == {(10, "forward"): 11 * US, (10, "loss"): 9 * US}


def test_an_annotation_of_the_users_hides_no_phase(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"), timeline.op("step", category="user_annotation"):
        timeline.line(10)
        with timeline.module("Net"):
            timeline.run(5 * US)
            timeline.leaf("aten::addmm", 50 * US)
        with timeline.update():
            timeline.run(7 * US)
            timeline.leaf("aten::add_", US)
    assert groups(timeline, tmp_path) == {(10, "forward"): 5 * US, (10, "optimizer"): 7 * US}


def test_without_a_line_log_gaps_are_of_the_phase_around_them(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window():
        timeline.leaf("aten::addmm", 50 * US)
        timeline.run(5 * US)
        timeline.leaf("aten::addmm", 50 * US)
        timeline.run(6 * US)
        for _ in range(2):
            with timeline.op("autograd::engine::evaluate_function: AddmmBackward0"):
                timeline.run(9 * US)
            timeline.run(2 * US)
        timeline.boundary()
    assert groups(timeline, tmp_path, blind=True) == {
        (0, "forward"): 5 * US,
        (0, "backward"): 2 * US,
        (0, "other"): 8 * US,
    }


def test_an_op_that_a_step_ends_in_covers_the_begin_of_the_next(tmp_path: Path) -> None:
    """An optimizer inside a hook of the backward pass: the update ends, the engine's node does not."""
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for _ in range(2):
            timeline.line(10, 4 * US)
            with timeline.op("autograd::engine::evaluate_function: AddmmBackward0"):
                timeline.run(5 * US)
                timeline.boundary()
                timeline.run(6 * US)
        timeline.line(11, 3 * US)
        timeline.boundary()
    assert groups(timeline, tmp_path) == {(10, "other"): 8 / 3 * US, (11, "other"): US}


def test_steps_without_ops_are_gaps_from_end_to_end(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for _ in range(2):
            timeline.line(10, MS)
            timeline.boundary()
    assert groups(timeline, tmp_path) == {(10, "other"): MS}


def test_a_piece_knows_whether_a_line_event_began_it(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        timeline.leaf("aten::add", US)
        timeline.run(US)
        timeline.line(11, US)
        timeline.line(12, US)
        timeline.leaf("aten::add", US)
        timeline.run(US)
        timeline.boundary()
    host, places = replayed(timeline, tmp_path)
    gaps = find_gaps(host, places)
    assert gaps.traced.tolist() == [False, True, True, False]
    assert gaps.number.tolist() == [0, 0, 0, 1]


PIECE = st.tuples(st.sampled_from(["op", "line", "run", "nested", "wait", "update"]), st.integers(0, 50))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps=st.lists(st.lists(PIECE, max_size=12), min_size=1, max_size=4))
def test_ops_waits_and_gaps_fill_the_steps_exactly(tmp_path: Path, steps: list[list[tuple[str, int]]]) -> None:
    timeline = Timeline()
    with timeline.window(), timeline.frame("main"):
        for step in steps:
            for kind, us in step:
                _happen(timeline, kind, us * US)
            timeline.boundary()
    host, places = replayed(timeline, tmp_path)
    gaps = find_gaps(host, places)
    covered = [row for row in range(len(host)) if _covers(host, row)]
    total = int((gaps.end - gaps.start).sum()) + sum(int(host.ops.dur[row]) for row in covered)
    assert total == int((host.spans[:, 1] - host.spans[:, 0]).sum())
    assert sum(g.ns for g in host_groups(host, places)) * host.num_steps == pytest.approx(
        int((gaps.end - gaps.start).sum())
    )
    assert (gaps.end > gaps.start).all()


def _covers(host: HostOps, row: int) -> bool:
    above, outermost = int(host.parent[row]), True
    while above >= 0:
        outermost &= not host.is_op[above] and not host.name(above).startswith("enumerate")
        above = int(host.parent[above])
    return outermost and (bool(host.is_op[row]) or host.name(row).startswith("enumerate"))


def _happen(timeline: Timeline, kind: str, ns: int) -> None:
    if kind == "op":
        timeline.leaf("aten::add", ns)
    elif kind == "line":
        timeline.line(ns % 7, ns)
    elif kind == "run":
        timeline.run(ns)
    elif kind == "nested":
        with timeline.op("aten::linear"):
            timeline.run(ns)
            timeline.leaf("aten::addmm", ns)
    elif kind == "wait":
        with timeline.wait():
            timeline.run(ns)
    else:
        with timeline.op("Optimizer.step#SGD.step", category="user_annotation"):
            timeline.run(ns)
            timeline.leaf("aten::add_", ns)
