"""What waits for the device cost at the plain step, against programs whose plain steps and steps without waits are
played by hand, event by event."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.ledger.device.device_side import device_ledger
from gobrrr.ledger.device.waits_replayed import LIGHTER, at_plain_speed
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import NOWHERE, Place, Places
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.steps.scaling import at_plain_step, factors
from gobrrr.recording.model.call_tree import nest
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import CPU_OP, Trace
from gobrrr.recording.trace_files.kineto import read_trace

LINE = Place((Span("train.py", 7, "train"),))
PLACES = Places(np.array([0]), np.array([1], np.int32), (NOWHERE, LINE))
BEGIN, RETURN, GAP = 8, 8, 1.3  # us from a launch to its kernel, from work's end to a wait's return, between kernels
Program = list[tuple[str, float]]
"""Of a step, in us: ("host", its work), ("launch", its kernel's length), ("wait", what fetching takes the host
besides: of a number, or 0), ("data", a wait for a batch), ("ranks", one for a collective), ("mark", 0) and
("event", 0), a wait for the mark before the last one."""


WAITS = {
    "data": ("user_annotation", "enumerate(DataLoader)#X.__next__"), "ranks": ("cpu_op", "gloo:all_reduce"),
}  # fmt: skip


def play(program: Program, steps: int, slower: float = 1.0, waits: bool = True) -> tuple[float, list[dict[str, Any]]]:
    """us per step once it runs steadily, and the trace's events."""
    host = device = marked = event_of = 0.0
    events, ends = [], [0.0]
    for _ in range(steps):
        for kind, length in program:
            if kind == "host":
                host += length * slower
            elif kind in ("data", "ranks"):
                events.append(event(*WAITS[kind], host, length))
                host += length
            elif kind == "launch":
                number = len(events)
                events.append(event("cuda_runtime", "cudaLaunchKernel", host, 1, correlation=number))
                device = max(device + GAP, host + BEGIN)
                events.append(event("kernel", "gemm", device, length, device=0, stream=7, correlation=number))
                device += length
            elif kind == "mark":
                event_of, marked = marked, device
            elif waits:
                asked, host = host, host + length * slower
                back = max(host, (event_of if kind == "event" else device) + RETURN)
                events.append(event("cuda_runtime", "cudaStreamSynchronize", host, back - host))
                host = back
                if length:
                    events.append(event("cpu_op", "aten::item", asked, host - asked))
        ends.append(max(host, device))
    return (ends[-1] - ends[len(ends) // 2]) / (steps - len(ends) // 2), events


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def read(folder: Path, events: list[dict[str, Any]]) -> tuple[Trace, HostOps]:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    trace = read_trace(path)
    end = max(int(trace.runtime.start.max() + trace.runtime.dur[-1]), 1)
    tree = nest(trace.ops.start, trace.ops.dur)
    size = len(trace.ops)
    return trace, HostOps(
        trace.ops, trace.names, tree.parent, tree.self_time, np.ones(size, bool), trace.ops.kind == CPU_OP,
        ("other",) * size, np.zeros(size, np.int32), np.array([[0, end]]), drained=True,
    )  # fmt: skip


def told(folder: Path, program: Program, slower: float, steps: int = 8) -> tuple[float, float, float]:
    """us per step that the waits cost: as told, as played without them, and as the window's own idle has it."""
    plain, _ = play(program, 40)
    _, events = play(program, steps, slower)
    trace, host = read(folder, events)
    spans = np.linspace(0, host.end, steps + 1).astype(np.int64)
    host = replace(host, spans=np.stack((spans[:-1], spans[1:]), axis=1))
    played = at_plain_speed(trace, trace.kernels, host, PLACES, plain * 1000)
    assert played is not None
    device, _ = device_ledger(trace, host, PLACES, steps, "gpu") or (None, None)
    assert device is not None
    in_window = at_plain_step(device, *factors(device, plain * 1000, alike=False))
    return (
        sum(ns for _, _, ns, _ in played.syncs) / 1000,
        plain - play(program, 40, waits=False)[0],
        dict(in_window.idle_by_cause)["sync"] / 1000,
    )


PING_PONG = [*[("host", 10.0), ("launch", 60.0)] * 60, *[("launch", 7.0), ("wait", 0.0), ("host", 15.0)] * 60]
"""Forward and backward, which the device is behind with, then a number fetched sixty times."""
NUMBERS = [*[("host", 30.0), ("launch", 10.0)] * 60, *[("launch", 7.0), ("wait", 20.0), ("host", 15.0)] * 60]
"""An op fetches each number, and the host is the limit: without it that is spared as well."""
AT_THE_END = [*[("host", 12.0), ("launch", 30.0)] * 100, ("wait", 0.0), ("host", 400.0)]
OF_THE_STEP_BEFORE = [*[("host", 40.0), ("launch", 10.0)] * 50, ("launch", 1500.0), ("mark", 0.0), ("event", 0.0)]
"""It waits for an event of the step before, which is long over: not for the long kernel that it has just launched."""
FOR_NOTHING = [*[("host", 40.0), ("launch", 10.0)] * 100, ("wait", 0.0)]
"""The host is late anyway: a wait for one short kernel."""
WITH_DATA = [("data", 2000.0), *[("host", 10.0), ("launch", 40.0)] * 50, ("wait", 0.0)]
WITH_RANKS = [*[("host", 10.0), ("launch", 40.0)] * 50, ("ranks", 3000.0), ("launch", 40.0), ("wait", 0.0)]
PROGRAMS = [PING_PONG, NUMBERS, AT_THE_END, OF_THE_STEP_BEFORE, FOR_NOTHING, WITH_DATA, WITH_RANKS]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("slower", [1.0, 2.0, 3.0])
def test_waits_cost_what_the_step_is_shorter_without_them(program: Program, slower: float, tmp_path: Path) -> None:
    found, true, _ = told(tmp_path, program, slower)
    assert found == pytest.approx(true, rel=0.05, abs=20)


def test_the_window_itself_would_not_show_it(tmp_path: Path) -> None:
    """Why it is played again: a host that is three times slower hardly waits, and is late all by itself."""
    found, true, in_window = told(tmp_path, PING_PONG, 3.0)
    assert in_window < 0.5 * true and found > 0.9 * true


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_lighter_kernels_make_the_step_shorter_as_far_as_the_host_is_not_late(
    program: Program, slower: float, tmp_path: Path
) -> None:
    plain, _ = play(program, 40)
    trace, host = read(tmp_path, play(program, 8, slower)[1])
    spans = np.linspace(0, host.end, 9).astype(np.int64)
    host = replace(host, spans=np.stack((spans[:-1], spans[1:]), axis=1))
    played = at_plain_speed(trace, trace.kernels, host, PLACES, plain * 1000)
    assert played is not None
    work = sum(length for kind, length in program if kind == "launch")
    for share, (freed, ns) in zip(LIGHTER, played.lighter, strict=True):
        lighter = [(kind, (1 - share) * length if kind == "launch" else length) for kind, length in program]
        assert freed / 1000 == pytest.approx(share * work, rel=0.02)
        assert ns / 1000 == pytest.approx(plain - play(lighter, 40)[0], abs=0.05 * plain), (
            "a host that waits is of any speed"
        )


def test_each_call_has_its_part_and_its_line(tmp_path: Path) -> None:
    _, events = play(AT_THE_END, 8)
    trace, host = read(tmp_path, events)
    ((name, calls, ns, where),), _ = at_plain_speed(trace, trace.kernels, host, PLACES, float(host.end)) or ((), ())
    assert (name, calls, where) == ("cudaStreamSynchronize", 8, LINE.where) and ns > 0


def test_it_is_not_told_of_streams_side_by_side_nor_of_windows_that_begin_in_the_middle(tmp_path: Path) -> None:
    _, events = play(AT_THE_END, 8)
    for number, kernel in enumerate(e for e in events if e["cat"] == "kernel"):
        kernel["args"]["stream"] = 7 + number % 2
    trace, host = read(tmp_path, events)
    assert at_plain_speed(trace, trace.kernels, host, PLACES, 1e6) is None
    _, events = play(AT_THE_END, 8)
    trace, host = read(tmp_path, events)
    assert at_plain_speed(trace, trace.kernels, replace(host, drained=False), PLACES, 1e6) is None


def test_it_is_not_told_where_no_speed_of_the_host_fits(tmp_path: Path) -> None:
    trace, host = read(tmp_path, play(AT_THE_END, 8)[1])
    whole = float(host.end)
    assert at_plain_speed(trace, trace.kernels, host, PLACES, whole) is not None
    assert at_plain_speed(trace, trace.kernels, host, PLACES, 0.3 * whole) is None, "less than the device's work"
    assert at_plain_speed(trace, trace.kernels, host, PLACES, 4 * whole) is None


def test_a_little_work_beside_the_main_stream_adds_no_time(tmp_path: Path) -> None:
    _, events = play(AT_THE_END, 8)
    aside = [{**e, "dur": 1, "args": {**e["args"], "stream": 8}} for e in events if e["cat"] == "kernel"]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    trace, host = read(tmp_path / "a", events)
    both, _ = read(tmp_path / "b", events + aside)
    ((*_, alone, _),), _ = at_plain_speed(trace, trace.kernels, host, PLACES, float(host.end)) or ((), ())
    ((*_, beside, _),), _ = at_plain_speed(both, both.kernels, host, PLACES, float(host.end)) or ((), ())
    assert beside == pytest.approx(alone, rel=0.02)
    for number, kernel in enumerate(e for e in events if e["cat"] == "kernel"):
        kernel["args"]["stream"] = 8 if number % 10 == 0 else 7
    trace, host = read(tmp_path, events)
    assert at_plain_speed(trace, trace.kernels, host, PLACES, float(host.end)) is None, "a tenth is not a little"


def test_idle_time_is_kept_whole_where_waits_cost_less_than_the_window_has() -> None:
    device = DeviceLedger(
        "gpu", busy_ns=100.0, idle_ns=60.0, span_busy_share=0.5, plain_syncs=(("a", 1, 12.0, ()),),
        idle_by_cause=(("stalled", 4.0), ("sync", 55.0), ("allocator", 1.0)),
    )  # fmt: skip
    found = dict(at_plain_step(device, *factors(device, 160.0, alike=False)).idle_by_cause)
    assert found == pytest.approx({"stalled": 4.0, "sync": 12.0, "allocator": 1.0, "launch": 0.0, "host": 43.0})


def test_at_the_plain_step_waits_keep_their_cost_and_the_rest_its_proportions() -> None:
    causes = (("data_wait", 10.0), ("sync", 5.0), ("launch", 30.0), ("host", 15.0))
    device = DeviceLedger(
        "gpu", busy_ns=100.0, idle_ns=60.0, span_busy_share=0.5, idle_by_cause=causes,
        syncs=(("a", 1, 5.0, ()),), plain_syncs=(("a", 1, 12.0, LINE.where),),
    )  # fmt: skip
    found = at_plain_step(device, *factors(device, 130.0, alike=False))  # idle is 30 of it: half of the window's
    assert dict(found.idle_by_cause) == pytest.approx(
        {"data_wait": 5.0, "sync": 12.0, "launch": 26 / 3, "host": 13 / 3}
    )
    assert found.syncs == (("a", 1, 12.0, LINE.where),)
    more = replace_waits(device, 90.0)
    found = at_plain_step(more, *factors(more, 130.0, alike=False))
    assert dict(found.idle_by_cause) == pytest.approx({"data_wait": 5.0, "sync": 25.0, "launch": 0.0, "host": 0.0})
    assert found.syncs[0][2] == pytest.approx(25.0), "no more than there is"


def test_at_the_plain_step_less_goes_of_kernels_that_are_shorter_and_the_step_is_its_own() -> None:
    device = DeviceLedger("gpu", busy_ns=100.0, idle_ns=60.0, span_busy_share=0.5, lighter=((10.0, 5.0),))
    assert at_plain_step(device, *factors(device, 80.0, alike=False)).lighter == ((8.0, 5.0),)


def replace_waits(device: DeviceLedger, ns: float) -> DeviceLedger:
    import msgspec

    return msgspec.structs.replace(device, plain_syncs=(("a", 1, ns, ()),))
