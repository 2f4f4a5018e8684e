"""Facts put together from what capture noted at several moments and from the journal's own counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.capture.session import recorder as recorder_module
from gobrrr.ledger.host.places import BACKWARD
from gobrrr.ledger.steps.other_loops import other_loops
from gobrrr.ledger.steps.step_stats import plain_steps, step_stats
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.facts import ChildFacts, Facts, Span
from gobrrr.recording.model.micro_steps import micro_steps
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.model.vitals import growth, plain_stretches, rates
from gobrrr.recording.run_folder.noted_facts import facts_of
from gobrrr.recording.run_folder.run import LineLog, Recording, Start, Window
from tests.support.event_streams import EVALUATION, MS, Program

SECOND = 1000 * MS


def recording(events: Any = (), *facts: dict[str, Any], **changes: Any) -> Recording:
    rows = np.array(events, np.int64).reshape(-1, 4)
    fields: dict[str, Any] = {
        "folder": Path(), "start": Start(), "events": rows, "loops": tuple(find_loops(rows)), "windows": (),
        "trace": None, "workers": (), "raw_facts": facts, "counted": {}, "ended": None, "lookups": 0, "missing": (),
    }  # fmt: skip
    return Recording(**{**fields, **changes})


def found(rec: Recording) -> Facts:
    return facts_of(rec, plain_steps(rec))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


# moments


def test_settings_are_those_of_the_steady_state() -> None:
    before, steady = {"threads": 4, "anomaly": False}, {"threads": 2, "anomaly": True}
    rec = recording(
        (), {"moment": "steady", "settings": steady}, {"moment": "windows", "settings": before},
        {"moment": "end", "settings": before},
    )  # fmt: skip
    assert (found(rec).settings.threads, found(rec).settings.anomaly) == (2, True)


def test_switches_seen_inside_the_step_win() -> None:
    """autocast and anomaly mode may be on inside the forward alone."""
    rec = recording(
        (), {"settings": {"autocast": None}}, counted={"switches": {"autocast": "bfloat16", "anomaly": None}}
    )
    assert found(rec).settings.autocast == "bfloat16"
    assert found(rec).settings.anomaly is None


def test_tables_keep_what_they_held_when_their_objects_lived() -> None:
    """At the program's end the loop's function has returned, and its optimizer is gone."""
    optimizer = {"id": 0, "kind": "SGD", "grad_bytes": 40, "state_bytes": 8}
    rec = recording((), {"optimizers": [optimizer]}, {"moment": "end", "optimizers": []})
    assert found(rec).optimizers[0].kind == "SGD"


def test_gradients_are_as_large_as_they_ever_were() -> None:
    """The last note may come after zero_grad()."""
    optimizer = {"id": 0, "kind": "SGD", "grad_bytes": 40, "state_bytes": 0}
    rec = recording((), {"optimizers": [optimizer]}, {"optimizers": [{**optimizer, "grad_bytes": 0, "state_bytes": 8}]})
    assert (found(rec).optimizers[0].grad_bytes, found(rec).optimizers[0].state_bytes) == (40, 8)


def test_modules_have_what_the_counting_steps_saw_of_them() -> None:
    roots = {"3": {"calls": 6, "repeated": 3, "grad_enabled": False, "span": {"file": "a.py", "line": 4}}}
    rec = recording((), {"modules": [{"id": 3, "kind": "GPT"}]}, counted={"roots": roots, "steps": 3})
    (module,) = found(rec).modules
    assert (module.calls_per_step, module.repeated_inputs, module.grad_enabled) == (2.0, 1.0, False)
    assert module.span == Span("a.py", 4)


@pytest.mark.parametrize(("flags", "grads"), [(3, True), (1, False), (0, False), (2, True)])
def test_without_a_counting_step_the_forwards_say_whether_gradients_were_on(flags: int, grads: bool) -> None:
    events = [(t, event_kinds.FORWARD, 3, flags) for t in range(1, 6)]
    assert found(recording(events, {"modules": [{"id": 3}]})).modules[0].grad_enabled is grads


def test_what_was_saved_is_summed_and_a_place_that_is_not_known_is_null() -> None:
    saved = [
        {"num_bytes": 100, "count": 1, "span": {"file": "a.py", "line": 4}, "module": "GPT", "op": "aten::mm"},
        {"num_bytes": 50, "count": 2, "span": {"file": "", "line": 0}},
    ]
    facts = found(recording(counted={"saved": saved}))
    assert facts.saved_total == 150
    assert [s.span for s in facts.saved] == [Span("a.py", 4), None]
    assert (facts.saved[0].module, facts.saved[0].op) == ("GPT", "aten::mm")
    assert found(recording()).saved_total is None, "not seen is not zero"
    assert found(recording(counted={"saved": []})).saved_total == 0


def test_recompilations_are_those_since_the_steps_were_steady() -> None:
    def compiled(graphs: int, ns: int) -> dict[str, Any]:
        return {"used": True, "num_graphs": graphs, "compile_ns": ns, "graph_breaks": 1, "reasons": ["size"]}

    rec = recording(
        (), {"moment": "steady", "compile": compiled(2, 5)}, {"moment": "windows", "compile": compiled(6, 50)},
        {"moment": "end", "compile": {}},
    )  # fmt: skip
    facts = found(rec).compile
    assert (facts.used, facts.recompiles, facts.recompile_ns, facts.reasons) == (True, 4, 45, ("size",))
    assert found(recording((), {"compile": compiled(6, 50)})).compile.recompiles == 0, (
        "no earlier count to compare with"
    )


def test_one_odd_value_costs_its_own_field_only() -> None:
    rec = recording((), {"settings": {"threads": "many"}, "memory": {"rss_bytes": 5, "swap_used": []}})
    facts = found(rec)
    assert facts.settings.threads is None
    assert (facts.rss_bytes, facts.swap_used) == (5, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "id",
        "key",
        "loader",
        "lengths",
        "rows",
        "cells",
        "grad_bytes",
        "num_bytes",
        "span",
        "kind",
        "steps",
        "num_graphs",
        "calls",
        "0",
    ]
)
TABLE = st.lists(st.dictionaries(NAMES, JSON, max_size=4) | JSON, max_size=3) | JSON
TABLES = ("watching", "settings", "modules", "optimizers", "loaders", "compile", "memory", "moment", "lengths")
COUNTED = ("switches", "roots", "saved", "inputs", "held", "denormals", "orphans", "steps", "gc_span", "gc_library")


@given(
    st.lists(st.dictionaries(st.sampled_from(TABLES), TABLE | st.just("steady"), max_size=5), max_size=3),
    st.dictionaries(st.sampled_from(COUNTED), TABLE | st.dictionaries(NAMES, JSON, max_size=4), max_size=5),
)
def test_a_strangers_facts_never_raise(facts: list[dict[str, Any]], counted: dict[str, Any]) -> None:
    ends = [(t, event_kinds.BOUNDARY, 0, 1) for t in range(1, 9)] + [
        (t, event_kinds.BOUNDARY, 0, 2) for t in range(9, 12)
    ]
    rec = recording(ends, *facts, counted=counted)
    assert isinstance(found(rec), Facts)
    assert step_stats(rec).overhead_share >= 0 or facts
    assert len(other_loops(rec)) == 1


# loaders


def test_iterators_of_one_loader_are_one_loader(program: Program) -> None:
    for epoch in range(3):
        program.recorder.note(event_kinds.ITER, -1)
        program.work(5)
        for n in range(10):
            program.wait(epoch, 50 if n == 0 else 2)
            program.work(8)
        program.epoch_ends(epoch)
    raw = [{"id": epoch, "key": [1, 2, 4], "num_workers": 4} for epoch in range(3)]
    (loader,) = found(recording(program.events, {"loaders": raw})).loaders
    assert loader.num_batches == 30
    assert loader.iter_ns == (5 * MS,) * 3
    assert loader.first_wait_ns == (50 * MS,) * 3
    assert loader.num_workers == 4


def test_what_an_epoch_costs_at_its_edges_is_known(program: Program) -> None:
    for epoch in range(3):
        program.recorder.note(event_kinds.ITER, -1)
        for n in range(4):
            program.wait(epoch, 2)
            program.forward(40 if n == 0 else 8)
            program.update(1)
        program.epoch_ends(epoch, 12)
    raw = [{"id": epoch, "key": [1, 2, 4], "num_workers": 4} for epoch in range(3)]
    (loader,) = found(recording(program.events, {"loaders": raw})).loaders
    assert loader.first_step_ns == (41 * MS,) * 3
    assert loader.end_wait_ns == (12 * MS,) * 3


def test_two_loaders_are_kept_apart(program: Program) -> None:
    for _ in range(4):
        program.wait(0, 1)
        program.wait(1, 1)
        program.wait(1, 1)
    raw = [{"id": 0, "key": [1, 2, 0], "dataset": "A"}, {"id": 1, "key": [9, 2, 0], "dataset": "B"}]
    facts = found(recording(program.events, {"loaders": raw}))
    assert [(loader.dataset, loader.num_batches) for loader in facts.loaders] == [("A", 4), ("B", 8)]


def test_an_empty_epoch_starts_no_clock_for_the_next_loader(program: Program) -> None:
    program.recorder.note(event_kinds.ITER, -1)
    program.epoch_ends(0)
    program.work(500)
    program.wait(1, 1)  # its iterator was made before watching began
    raw = [{"id": 0, "key": [1]}, {"id": 1, "key": [2]}]
    facts = found(recording(program.events, {"loaders": raw}))
    assert facts.loaders[1].iter_ns == () and facts.loaders[1].first_wait_ns == ()


# micro-steps


@pytest.mark.parametrize("micro", [1, 4])
def test_accumulation_is_counted_in_batches_with_their_own_forwards(program: Program, micro: int) -> None:
    for _ in range(8):
        for _ in range(micro):
            program.wait(0, 1)
            program.forward(1, module=0)
            program.forward(1, module=1)  # the criterion
        program.update(1)
    assert micro_steps(recording(program.events), 0) == micro


def test_a_gan_accumulates_nothing(program: Program) -> None:
    for _ in range(8):
        program.wait(0, 1)
        program.forward(1, module=0)
        program.forward(1, module=1)
        program.forward(1, module=0)  # real and fake
        program.update(1, optimizer=0)
        program.forward(1, module=0)
        program.update(1, optimizer=1)
    assert [micro_steps(recording(program.events), number) for number in (0, 1, 2)] == [1.0, 1.0, 1.0]


def test_batches_read_in_pairs_are_one_micro_step_where_the_backward_is_one(program: Program) -> None:
    log: list[int] = []
    began = program.now
    for _ in range(8):
        program.wait(0, 1)
        program.wait(1, 1)
        program.forward(1)
        program.forward(1)
        log.append(program.now)
        program.work(1)
        program.update(1)
    assert micro_steps(recording(program.events), 0) == 2.0, "nobody saw the backward"
    lines = LineLog(t=log, op=[BACKWARD] * 8, number=[0] * 8, line=[0] * 8)
    window = Window("profile", (1, 0), 8, began, program.now, (0, 0), lines=lines)
    assert micro_steps(recording(program.events, windows=(window,)), 0) == 1.0


def test_without_a_loader_the_forwards_tell(program: Program) -> None:
    for _ in range(8):
        for _ in range(3):
            program.forward(1)
        program.update(1)
        for _ in range(5):
            program.forward(1, flags=EVALUATION)
    assert micro_steps(recording(program.events), 0) == 3.0


def test_an_evaluation_now_and_then_changes_nothing(program: Program) -> None:
    for n in range(9):
        program.wait(0, 1)
        program.forward(1)
        program.update(1)
        for _ in range(50 * (n == 4)):
            program.wait(1, 1)
            program.forward(1, flags=EVALUATION)
    assert micro_steps(recording(program.events), 0) == 1.0


# vital signs


def watched(program: Program) -> dict[str, float | None]:
    rec = recording(program.events)
    return rates(rec, plain_steps(rec))


def test_growth_is_bytes_per_step(program: Program) -> None:
    program.rss_per_step = 5000
    program.train(400)
    assert watched(program)["rss_growth_per_step"] == pytest.approx(5000, rel=0.05)


def test_files_that_are_mapped_do_not_grow(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process's own memory was read, resident memory says nothing of growth."""
    monkeypatch.setattr(recorder_module, "vitals", lambda: [*program._vitals(), (event_kinds.OWN, 1 << 29)])
    program.rss_per_step = 5000
    program.train(400)
    assert watched(program)["rss_growth_per_step"] == 0.0


def test_a_peak_is_no_less_than_what_was_read_on_the_way(program: Program) -> None:
    program.train(20)
    own = (program.now, event_kinds.OWN, 0, 9 << 30)
    rec = recording([*program.events.tolist(), own], {"memory": {"peak_rss_bytes": 2 << 30}})
    assert found(rec).peak_rss_bytes == 9 << 30


def test_what_a_window_adds_to_the_peak_is_none_of_the_program() -> None:
    """Its events stay in the process: what is read of its memory later has them, too."""
    window = Window("profile", (1, 0), 5, began=50, ended=60, clock=(0, 0), peak_grew=2 << 30)
    memory = {"memory": {"peak_rss_bytes": 3 << 30}}
    assert found(recording((), memory, windows=(window,))).peak_rss_bytes == 1 << 30
    for t, value, peak in ((40, 2 << 30, 2 << 30), (70, 3 << 30, 1 << 30), (70, 7 << 29, 3 << 29)):
        rows = [(t, event_kinds.OWN, 0, value)]
        assert found(recording(rows, memory, windows=(window,))).peak_rss_bytes == peak


def test_memory_that_comes_and_goes_does_not_grow(program: Program) -> None:
    for n in range(60):
        program.rss = (1 << 30) + (n % 2) * (64 << 20)
        program.train(11)
    assert abs(watched(program)["rss_growth_per_step"] or 0.0) < 20_000


@pytest.mark.parametrize("before", [100, 200, 300])
def test_one_large_allocation_is_no_growth(program: Program, before: int) -> None:
    program.train(before)
    program.rss += 512 << 20
    program.train(400 - before)
    growth = watched(program)["rss_growth_per_step"]
    assert growth is not None and abs(growth) < 0.1 * (512 << 20) / 400


def test_a_leak_that_shows_in_jumps_is_growth(program: Program) -> None:
    """The allocator asks for 64 MiB at a time."""
    for _ in range(20):
        program.train(40)
        program.rss += 64 << 20
    assert watched(program)["rss_growth_per_step"] == pytest.approx((64 << 20) / 40, rel=0.3)


def test_memory_that_rises_and_falls_again_does_not_grow(program: Program) -> None:
    program.rss_per_step = 5000
    program.train(200)
    program.rss_per_step = -5000
    program.train(200)
    assert watched(program)["rss_growth_per_step"] == 0.0


@pytest.mark.parametrize(("samples", "period"), [(16, 7), (80, 30)])
def test_a_buffer_that_is_filled_and_emptied_does_not_grow(samples: int, period: int) -> None:
    """Neighbouring samples rise nearly always; what lies further apart shows that it comes to nothing."""
    times = np.arange(samples, dtype=float)
    assert growth(np.stack((times, times % period), axis=1), 1.0) == 0.0


def test_few_samples_say_nothing_of_growth(program: Program) -> None:
    program.rss_per_step = 5000
    program.train(20)
    assert watched(program)["rss_growth_per_step"] is None


def test_loads_and_faults_are_rates_over_plain_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program uses half a core, the machine one and a half. A profiled window in between counts for nothing."""
    program = Program(monkeypatch, windows={60: (event_kinds.PROFILE, 4)})
    busy = lambda: int(1.5 * program.now) if not program._open else 50 * program.now  # noqa: E731
    vitals = program._vitals
    from gobrrr.capture.session import recorder

    monkeypatch.setattr(recorder, "vitals", lambda: [*vitals(), (event_kinds.BUSY, busy())])
    program.slower = 40.0
    program.train(120)
    seen = watched(program)
    assert seen["process_load"] == pytest.approx(0.5, rel=1e-3)
    assert seen["other_load"] == pytest.approx(1.0, rel=1e-3)
    assert seen["minor_faults_per_step"] == pytest.approx(10 * MS / 1000, rel=1e-3)


def test_faults_before_the_first_window_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 per ms until a window opens at the 60th boundary, then none."""
    program = Program(monkeypatch, windows={60: (event_kinds.PROFILE, 4)})
    from gobrrr.capture.session import recorder

    until: list[int] = []

    def vitals() -> list[tuple[int, int]]:
        if program._open and not until:
            until.append(program.now)
        return [(event_kinds.FAULTS, (until[0] if until else program.now) // 1000)]

    monkeypatch.setattr(recorder, "vitals", vitals)
    program.train(120)
    seen = watched(program)
    assert seen["minor_faults_before"] == pytest.approx(10 * MS / 1000, rel=1e-3)
    assert seen["minor_faults_per_step"] < seen["minor_faults_before"] / 2, "of both sides of the window"


@pytest.mark.parametrize("grown", [0, 5_000, 20_000])
def test_pages_that_memory_grew_by_are_touched_once(monkeypatch: pytest.MonkeyPatch, grown: int) -> None:
    """10,000 faults per step, some of them of a cache that fills."""
    program = Program(monkeypatch, windows={60: (event_kinds.PROFILE, 4)})
    program.rss_per_step = 4096 * grown
    program.train(120)
    assert watched(program)["minor_faults_before"] == pytest.approx(max(0, 10_000 - grown), rel=0.02, abs=1)


@pytest.mark.parametrize("first", [0, 5])
def test_of_too_few_steps_before_a_window_no_faults_are_told(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    program = Program(monkeypatch, windows={first: (event_kinds.PROFILE, 4)} if first else {})
    program.train(60)
    assert watched(program).get("minor_faults_before") is None


def test_where_the_machine_is_not_seen_nobody_else_is_counted(program: Program) -> None:
    program.train(60)
    seen = watched(program)
    assert seen["process_load"] == pytest.approx(0.5, rel=1e-3)
    assert "other_load" not in seen


def test_collections_count_in_the_steps_they_ended_in(program: Program) -> None:
    """They are journalled at the next boundary, with the time at which they ended."""
    program.train(10)
    rows = program.events.tolist()
    ends = [t for t, kind, *_ in rows if kind == event_kinds.BOUNDARY]
    late = [
        (ends[4] + MS, event_kinds.GC, 0, 3 * MS),
        (ends[6], event_kinds.GC, 0, 5 * MS),
        (ends[0] - MS, event_kinds.GC, 0, 99 * MS),
    ]
    rec = recording([*rows, *late])
    plain = plain_steps(rec)
    seen = rates(rec, plain)
    assert len(plain) == 8, "the first boundary begins the first step, which is warm-up"
    assert seen["gc_ns_per_step"] == pytest.approx(MS, rel=1e-3)
    assert seen["gc_runs_per_step"] == 2 / 8
    assert seen["gc_usual_ns"] == 0, "the usual step has none"


@pytest.mark.parametrize(("ms", "by_hand", "runs"), [(50, 50 / 66, 1 / 8), (1, 1 / 17, 1.0)])
def test_collections_by_hand_are_told_from_those_that_come_by_themselves(
    program: Program, ms: int, by_hand: float, runs: float
) -> None:
    """One by hand, and a short one by itself in every step: runs are of the kind that takes more."""
    program.train(10)
    rows = program.events.tolist()
    ends = [t for t, kind, *_ in rows if kind == event_kinds.BOUNDARY]
    own = [(end + MS, event_kinds.GC, 0, 2 * MS) for end in ends[1:-1]]
    seen = rates(rec := recording([*rows, *own, (ends[4] + 2 * MS, event_kinds.GC, 1, ms * MS)]), plain_steps(rec))
    assert seen["gc_by_hand"] == pytest.approx(by_hand)
    assert seen["gc_runs_per_step"] == runs
    assert seen["gc_usual_ns"] == 2 * MS


def test_collections_never_take_more_than_the_step(program: Program) -> None:
    """A few steps collect for long: their mean is more than a whole median step."""
    program.train(10)
    program.work(2000)
    late = (program.now, event_kinds.GC, 0, 1900 * MS)
    program.train(10)
    rec = recording([*program.events.tolist(), late])
    plain = plain_steps(rec)
    seen = rates(rec, plain)["gc_ns_per_step"]
    assert seen is not None and 0 < seen < np.median([step.wall for step in plain]) < 1900 * MS / len(plain)


def test_windows_cut_the_plain_time(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch, windows={10: (event_kinds.PROFILE, 4), 30: (event_kinds.SAMPLE, 3)})
    program.train(50)
    rec = recording(program.events)
    stretches = plain_stretches(rec.events, plain_steps(rec))
    assert len(stretches) == 3
    cuts = rec.events[np.isin(rec.events[:, 1], (event_kinds.WINDOW_BEGIN, event_kinds.WINDOW_END)), 0]
    assert all(begin < end and not ((cuts > begin) & (cuts < end)).any() for begin, end in stretches)


def test_no_plain_step_has_no_rates() -> None:
    assert rates(recording(), []) == {}


def test_children_are_those_of_the_last_moment() -> None:
    early = {"moment": "steady", "children": {"processes": 1, "cpu_ns": 5, "loaders_ns": 0, "own_ns": 9}}
    late = {"moment": "end", "children": {"processes": 2, "cpu_ns": 50, "loaders_ns": 60, "own_ns": 9}}
    assert found(recording((), early, late)).children == ChildFacts(2, 50, 60, 9)
    assert found(recording()).children is None
    assert found(recording((), early, late)).children.others_ns == 0


@pytest.mark.parametrize("how", ["in place", "through .data", "another storage", "not at all"])
def test_two_looks_tell_whether_frozen_weights_move(how: str) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.capture.facts.program_facts import _as_they_are

    teacher = [torch.nn.Parameter(torch.ones(3, 3), requires_grad=False) for _ in range(12)]
    before = _as_they_are(teacher)
    for weight in teacher if how != "not at all" else ():
        if how == "in place":
            weight.mul_(1.0)
        elif how == "through .data":
            weight.data.mul_(0.99)
        else:
            weight.data = weight.data.clone()
    looks = [{"modules": [{"id": 3, "frozen": look}]} for look in (before, _as_they_are(teacher))]
    (module,) = found(recording((), *looks)).modules
    assert module.frozen_moved == (how != "not at all") and len(before) == 8
    (once,) = found(recording((), looks[0])).modules
    assert once.frozen_moved is None and _as_they_are([]) == []


def test_hooks_that_pile_up_are_counted_between_two_looks() -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.capture.hooks.module_parts import num_hooks

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model[0].register_forward_hook(print)
    looks = [{"steps": 100, "modules": [{"id": 3, "hooks": num_hooks(model)}]}]
    for _ in range(5):
        model[1].register_forward_pre_hook(print)
        model.register_full_backward_hook(print)
    looks.append({"steps": 300, "modules": [{"id": 3, "hooks": num_hooks(model)}]})
    (module,) = found(recording((), *looks)).modules
    assert (module.hooks, module.hooks_per_step) == (11, pytest.approx(10 / 200))
    (once,) = found(recording((), looks[0])).modules
    assert (once.hooks, once.hooks_per_step) == (1, 0.0)
