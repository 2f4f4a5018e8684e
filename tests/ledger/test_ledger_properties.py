"""Whole ledgers of generated and of hand-made timelines: every nanosecond once, nothing negative, pure."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.capture.session.journal import JournalWriter
from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.host.host_ops import host_ops
from gobrrr.ledger.host.places import replay
from gobrrr.ledger.model.ledger import ACCOUNTS, Ledger
from gobrrr.ledger.ops.op_groups import op_groups
from gobrrr.ledger.ops.pricing import Prices
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.run import Recording, Samples, Start, Window, load_run
from tests.support.handmade import machine
from tests.support.timelines import FILE, MS, OFFSET, PID, US, Timeline, host_groups, sampled

QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def checked(recording: Recording) -> Ledger:
    """The ledger, held against everything that is true of any ledger."""
    ledger = build_ledger(Profiled(recording), machine())
    assert msgspec.json.encode(ledger) == msgspec.json.encode(build_ledger(Profiled(recording), machine())), "pure"
    wall = ledger.wall
    names = [account.account for account in ledger.accounts]
    assert len(set(names)) == len(names) and set(names) <= set(ACCOUNTS)
    assert all(account.ns >= -1e-6 * wall - 1 for account in ledger.accounts)
    assert sum(account.ns for account in ledger.accounts) == pytest.approx(wall, rel=0.01, abs=20)
    assert all(
        account.share == pytest.approx(account.ns / wall if wall else 0.0, abs=1e-6) for account in ledger.accounts
    )
    assert sum(ns for _, ns in ledger.phases) == pytest.approx(wall, rel=0.01, abs=20)
    assert all(ns >= 0 for _, ns in ledger.phases)
    for op in ledger.ops:
        assert op.ns >= 0 and op.calls > 0
        assert 0 <= op.floor_ns <= op.ns * (1 + 1e-9) + 1e-6
        assert 0 <= op.dispatch_ns <= op.ns - op.floor_ns + 1e-6 * op.ns + 1e-6
    assert all(group.ns >= 0 for group in ledger.host)
    assert sum(line.ns for line in ledger.lines) == pytest.approx(wall if ledger.lines else 0.0, rel=1e-6, abs=1)
    return ledger


# generated


class Maker:
    """Turns drawn trees into what happens, `slower` times as slow where the instruments watch."""

    def __init__(self, timeline: Timeline, per_op: int, per_line: int) -> None:
        self.timeline, self.per_op, self.per_line = timeline, per_op, per_line

    def run(self, kind: str, us: int, inside: list[Any]) -> None:
        """One node of a tree."""
        timeline, ns = self.timeline, us * US
        if kind == "line":
            timeline.line(us % 9 + 1, ns + self.per_line)
        elif kind == "op":
            timeline.run(self.per_op)
            with timeline.op(
                "aten::linear" if inside else "aten::mm", (8, us + 1), (us + 1, 8), sequence=timeline.node()
            ):
                timeline.run(ns)
                self.all(inside)
        elif kind == "module":
            with timeline.module(f"Net.{us % 3}"):
                self.all(inside)
        elif kind == "backward":
            with (
                timeline.backward(),
                timeline.op("autograd::engine::evaluate_function: X", sequence=us, is_backward=True),
            ):
                timeline.run(ns)
                self.all(inside)
        elif kind == "frame":
            with timeline.frame(f"f{us % 3}", 1):
                self.all(inside)
        else:
            timeline.run(ns)

    def all(self, nodes: list[Any]) -> None:
        """Some nodes, one after the other."""
        for node in nodes:
            self.run(*node)

    def step(self, wait_us: int, nodes: list[Any], update_us: int) -> None:
        """A whole step."""
        with self.timeline.wait():
            self.timeline.run(wait_us * US)
        self.all(nodes)
        with self.timeline.update():
            self.timeline.leaf("aten::_foreach_add_", update_us * US)


KIND = st.sampled_from(["line", "op", "run", "module", "backward", "frame"])
NODES: Any = st.recursive(
    st.just([]), lambda inner: st.lists(st.tuples(KIND, st.integers(0, 300), inner), max_size=4), max_leaves=12
)
STEPS = st.lists(st.tuples(st.integers(0, 2000), NODES, st.integers(0, 200)), min_size=1, max_size=5)
PLAIN = st.lists(st.integers(1, 20_000), max_size=12)


def timeline_of(steps: list[Any], plain: list[int], wait: int, per_op: int, per_line: int) -> Timeline:
    timeline = Timeline()
    timeline.plain_steps(*(us * US for us in plain), wait=wait * US)
    with timeline.window(), timeline.frame("main"):
        maker = Maker(timeline, per_op, per_line)
        for step in steps:
            maker.step(*step)
    timeline.plain_steps(*(us * US for us in plain), wait=wait * US)
    return timeline


@QUIET
@given(STEPS, PLAIN, st.integers(0, 5000), st.integers(0, 3000), st.integers(0, 3000))
def test_any_timeline_is_accounted_for(
    tmp_path: Path, steps: list[Any], plain: list[int], wait: int, per_op: int, per_line: int
) -> None:
    checked(timeline_of(steps, plain, wait, per_op, per_line).recording(tmp_path))


@QUIET
@given(STEPS, st.integers(0, 3000), st.integers(1, 40))
def test_no_op_is_longer_than_an_inflated_profile_saw_it(
    tmp_path: Path, steps: list[Any], per_op: int, slower: int
) -> None:
    """The profile was as long as the plain step, or up to forty times as long."""
    profiled = timeline_of(steps, [], 0, per_op, 0).recording(tmp_path)
    window = profiled.window("profile")
    assert window is not None and profiled.trace is not None
    places = replay(window.lines, window.offset)
    host = host_ops(profiled, window, profiled.trace, places)
    calls = op_groups(host, profiled.trace, places, Prices(machine(), 1, None), 1000.0, {})
    own = sum(group.ns for group in [*calls.groups, *host_groups(host, places)] if group.phase != "data")
    plain = max(1, int(own / slower))
    timeline = timeline_of(steps, [plain // US] * 9, 0, per_op, 0)
    saw = {group.order: group.ns for group in calls.groups}
    for op in checked(timeline.recording(tmp_path)).ops:
        assert op.ns <= saw[op.order] * (1 + 1e-9) + 1e-6


# by hand


def known_step(timeline: Timeline, extra: int = 0) -> None:
    """2 ms wait, 3 ms forward, 0.5 ms loss, 4 ms backward, 1 ms update, 1.5 ms of Python on line 42."""
    timeline.line(10)
    with timeline.wait():
        timeline.run(2 * MS)
    timeline.line(11)
    with timeline.module("Net"):
        timeline.leaf("aten::mm", 3 * MS, (512, 512), (512, 512), sequence=5)
    timeline.leaf("mine::loss", MS // 2, (512, 512))
    with (
        timeline.backward(),
        timeline.op("autograd::engine::evaluate_function: MmBackward0", sequence=5, is_backward=True),
    ):
        timeline.leaf("aten::mm", 4 * MS, (512, 512), (512, 512))
    with timeline.frame("log", 41):
        timeline.line(42, MS + MS // 2 + extra, "log")
    timeline.line(12)
    with timeline.update():
        timeline.leaf("aten::add_", MS, (1 << 20,), (1 << 20,))


FLOOR = 1e9 * 2 * 512**3 / 200e9  # at two threads
WALL = 12 * MS


def known(folder: Path, extra: int = 0) -> Ledger:
    timeline = Timeline()
    timeline.plain_steps(*[WALL] * 20, wait=2 * MS)
    with timeline.window(), timeline.frame("main"):
        for _ in range(3):
            known_step(timeline, extra)
    return checked(timeline.recording(folder, start=Start(pid=PID, threads=2)))


def test_a_step_made_by_hand_is_accounted_for_to_the_nanosecond(tmp_path: Path) -> None:
    ledger = known(tmp_path)
    dispatch = 1000
    accounts = {account.account: account.ns for account in ledger.accounts}
    streamed = 1e9 * 3 * 4 * (1 << 20) / 20e9
    assert ledger.wall == WALL
    assert accounts == pytest.approx(
        {
            "data_wait": 2 * MS, "compute": 2 * FLOOR, "bandwidth": streamed,
            "inefficiency": 3 * MS + 4 * MS + MS - 2 * FLOOR - streamed - 3 * dispatch,
            "uncounted": MS // 2 - dispatch, "dispatch": 4 * dispatch, "host": 1.5 * MS, "unattributed": 0,
        }
    )  # fmt: skip
    assert dict(ledger.phases) == pytest.approx(
        {"data": 2 * MS, "forward": 3 * MS, "loss": MS / 2, "backward": 4 * MS, "optimizer": MS, "other": 1.5 * MS}
    )
    (python,) = ledger.host
    assert [(span.file, span.line, span.function) for span in python.where] == [(FILE, 42, "log"), (FILE, 11, "main")]
    assert python.ns == pytest.approx(1.5 * MS)
    backward = next(op for op in ledger.ops if op.name == "aten::mm" and op.phase == "backward")
    assert backward.where[0].line == 11, "the line of the forward"
    assert ledger.roofline.flops == 2 * 2 * 512**3 + (1 << 20)
    assert ledger.roofline.not_counted == (("mine::loss", pytest.approx(0.5 / 12)),)


def test_rare_collections_are_no_part_of_the_median_step(tmp_path: Path) -> None:
    """Every fifth step collects for as long as a step."""
    timeline = Timeline()
    for _ in range(4):
        timeline.plain_steps(*[WALL] * 4, 2 * WALL, wait=2 * MS)
        timeline.events[-1:-1] = [(timeline.now - MS, event_kinds.GC, 1, WALL)]
    with timeline.window(), timeline.frame("main"):
        for _ in range(3):
            known_step(timeline)
    ledger = checked(timeline.recording(tmp_path, start=Start(pid=PID, threads=2)))
    assert ledger.facts.gc_ns_per_step and ledger.facts.gc_usual_ns == 0 == ledger.account("gc")
    assert ledger.account("host") > 0


def test_a_traced_loop_of_python_comes_back_to_its_plain_length(tmp_path: Path) -> None:
    """The line log made line 42 take 1000 lines more of 0.6 us: the excess is taken from there, not from the ops."""
    timeline = Timeline()
    timeline.plain_steps(*[WALL] * 20, wait=2 * MS)
    with timeline.window(), timeline.frame("main"):
        for _ in range(3):
            known_step(timeline)
            timeline.events.pop()  # the boundary comes after the loop
            timeline.num_steps -= 1
            for _ in range(1000):
                timeline.line(42, 600)
            timeline.boundary()
    ledger = checked(timeline.recording(tmp_path, start=Start(pid=PID, threads=2)))
    assert sum(op.ns for op in ledger.ops) == pytest.approx(8.5 * MS, rel=0.01)
    assert sum(group.ns for group in ledger.host) == pytest.approx(1.5 * MS, rel=0.05)


def test_host_time_is_named_by_what_was_sampled_most_below_its_line(tmp_path: Path) -> None:
    """Line 42 was sampled in two phases, mostly in one that copies."""
    site = "/env/lib/python3.11/site-packages/"
    frames = (
        (FILE, "log", 42, True), (site + "copy.py", "deepcopy", 1, False),
        (site + "torch/optim/optimizer.py", "step", 1, False), (site + "torch/optim/sgd.py", "sgd", 1, False),
    )  # fmt: skip
    seen = sampled((90, (1, 0), 90), (100, (3, 2, 0), 100), frames=frames)
    timeline = known_timeline()
    windows = (timeline.profiled(), Window("sample", (1, 0), 1, 0, 100, (OFFSET, 0), samples=seen))
    ledger = checked(timeline.recording(tmp_path, windows=windows))
    (python,) = ledger.host
    assert python.where[0].line == 42
    assert (python.library, python.functions) == ("copy", ("copy.deepcopy",))


# what may be missing


def test_no_step_no_window_no_samples_no_trace_never_raise(tmp_path: Path) -> None:
    bare = Timeline().recording(tmp_path)
    ledger = checked(bare)
    assert ledger.signals == frozenset() and ledger.wall == 0
    one = Timeline()
    one.plain_steps(MS)
    checked(one.recording(tmp_path))
    many = Timeline()
    many.plain_steps(*[MS] * 9, wait=MS // 4)
    ledger = checked(many.recording(tmp_path))
    assert ledger.signals == {"plain"}
    assert {a.account: a.ns for a in ledger.accounts} == {"data_wait": MS / 4, "unattributed": 0.75 * MS}
    assert dict(ledger.phases) == {"data": MS / 4, "other": 0.75 * MS}


def test_a_window_without_steps_or_ops_is_no_profile(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.plain_steps(*[MS] * 9)
    with timeline.window():
        timeline.run(MS)
    ledger = checked(timeline.recording(tmp_path))
    assert not ledger.ops and "ops" not in ledger.signals
    timeline.num_steps = 1
    ledger = checked(timeline.recording(tmp_path))
    assert ledger.account("unattributed") == MS


def sampled_window(*samples: tuple[int, tuple[int, ...], int], end: int = 100 * MS) -> Window:
    frames = ((FILE, "main", 10, True), (FILE, "main", 11, True), ("/x/torch/utils/data/dataloader.py", "n", 1, False))
    return Window("sample", (1, 0), 2, 0, end, (OFFSET, 0), samples=sampled(*samples, frames=frames))


def test_without_a_profile_the_sampled_lines_give_the_phases(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.plain_steps(*[MS] * 9, wait=MS // 4)
    window = sampled_window((50 * MS, (0,), 50 * MS), (80 * MS, (1,), 80 * MS), (100 * MS, (2, 0), 80 * MS))
    ledger = checked(timeline.recording(tmp_path, windows=(window,)))
    assert ledger.signals == {"plain", "samples"}
    assert dict(ledger.phases) == {"data": MS / 4, "other": 0.75 * MS}
    assert [(line.where[0].line, line.phase, line.ns) for line in ledger.lines] == [
        (10, "other", MS / 2), (11, "other", 0.3 * MS), (10, "data", 0.2 * MS)
    ]  # fmt: skip


@pytest.mark.parametrize("window", [sampled_window(), Window("sample", (1, 0), 0, 5, 5, (0, 0), samples=Samples())])
def test_a_sampler_that_saw_nothing_has_no_lines(tmp_path: Path, window: Window) -> None:
    timeline = Timeline()
    timeline.plain_steps(*[MS] * 9)
    assert checked(timeline.recording(tmp_path, windows=(window,))).lines == ()


# through files


def journalled(folder: Path, timeline: Timeline, *records: dict[str, Any]) -> Recording:
    """Written as the watched program writes it, and read back."""
    writer = JournalWriter(folder / "rank0.journal")
    writer.json({"type": "start", "clock": [OFFSET, 0], "pid": PID, "threads": 2})
    writer.events(array("q", [value for event in timeline.events for value in event]))
    window = json.loads(msgspec.json.encode(timeline.profiled()))
    for record in ({"type": "window", **window}, *records, {"type": "end", "reason": "exit", "lookups": 5}):
        writer.json(record)
    writer.close()
    (folder / "trace.json").write_text(timeline.document())
    (recording,) = load_run(folder)
    return recording


def known_timeline() -> Timeline:
    timeline = Timeline()
    timeline.plain_steps(*[WALL] * 20, wait=2 * MS)
    with timeline.window(), timeline.frame("main"):
        for _ in range(3):
            known_step(timeline)
    return timeline


def test_a_recording_read_back_from_files_gives_the_same_ledger(tmp_path: Path) -> None:
    read = checked(journalled(tmp_path, known_timeline()))
    made = known(tmp_path)
    assert read.missing == ()
    for field in ("step", "accounts", "phases", "ops", "host", "roofline"):
        assert getattr(read, field) == getattr(made, field)


@pytest.mark.parametrize("broken", ["gone", "empty", "text", "cut"])
def test_a_trace_that_cannot_be_read_costs_the_profile_only(tmp_path: Path, broken: str) -> None:
    journalled(tmp_path, known_timeline())
    trace = tmp_path / "trace.json"
    {
        "gone": trace.unlink,
        "empty": lambda: trace.write_text(""),
        "text": lambda: trace.write_text("no trace"),
        "cut": lambda: trace.write_text(trace.read_text()[: trace.stat().st_size // 2]),
    }[broken]()
    (recording,) = load_run(tmp_path)
    ledger = checked(recording)
    assert ledger.wall == WALL
    assert any("trace" in note for note in ledger.missing)


@pytest.mark.parametrize("column", ["t", "op", "number", "line"])
def test_torn_columns_cost_the_window_only(tmp_path: Path, column: str) -> None:
    timeline = known_timeline()
    torn = json.loads(msgspec.json.encode(timeline.profiled()))
    torn["lines"][column].pop()
    timeline.profiled = lambda: torn  # type: ignore[method-assign, assignment, return-value]
    recording = journalled(tmp_path, timeline)
    ledger = checked(recording)
    assert not ledger.ops and ledger.wall == WALL
    assert any("torn" in note for note in ledger.missing)


NUMBER = st.integers(-(2**40), 2**40)


@QUIET
@given(
    st.lists(st.tuples(NUMBER, st.integers(0, 20), st.integers(-2, 3), NUMBER), max_size=40),
    st.lists(st.tuples(NUMBER, st.integers(-1, 9), st.integers(-1, 3), st.integers(-1, 9)), max_size=20),
    NUMBER, st.integers(0, 2**40), st.integers(-1, 5), NUMBER,
)  # fmt: skip
def test_a_strangers_journal_never_raises(
    tmp_path: Path, events: list[Any], log: list[Any], began: int, length: int, steps: int, clock: int
) -> None:
    """Times that run backward, windows that end before their steps: figures mean nothing, and nothing is raised."""
    timeline = Timeline()
    with timeline.window():
        timeline.leaf("aten::mm", US, (8, 8), (8, 8))
    timeline.events = events
    timeline.log = log
    timeline.began, timeline.ended, timeline.num_steps = began, began + length, steps
    (tmp_path / "rank0.journal").unlink(missing_ok=True)
    recording = journalled(tmp_path, timeline, {"type": "facts", "clock": clock})
    assert isinstance(build_ledger(Profiled(recording), machine()), Ledger)
