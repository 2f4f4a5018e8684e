"""The timeline of a step: what ran where, who is blamed while nothing ran, and narrow events joined without a loss."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.ledger.device.device_side import device_ledger
from gobrrr.ledger.device.idle import blamed, stalls
from gobrrr.ledger.host.host_ops import host_ops
from gobrrr.ledger.host.places import replay
from gobrrr.ledger.steps.profiled_window import profiled_window
from gobrrr.recording.run_folder.run import Recording
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import Source, read
from gobrrr.report.timeline.slices import Said, Slice, Track, width_for
from gobrrr.report.timeline.timeline import DEPTH, MOST, STREAMS, THREADS, Lane, timeline
from gobrrr.spans import Ints, as_spans, gaps, total, union
from tests.pipeline.test_files import Event, event, kernel, training, write
from tests.support.timelines import MS, US, Timeline

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))


def recorded(folder: Path, events: list[Event]) -> Recording:
    return of_trace(read(Source(str(write(folder / "trace.json", events)))))


def seen(lane: Lane, row: int = 0) -> list[tuple[float, float, str, str]]:
    """(begin us, end us, kind, name) of a row's slices."""
    return [(each.start / US, each.end / US, each.kind, each.said.name) for each in lane.rows[row]]


def lanes_of(recording: Recording) -> dict[str, Lane]:
    found = timeline(profiled_window(recording))
    assert found is not None
    return {lane.name: lane for lane in found.lanes}


def test_a_step_of_a_gpu_has_its_lanes_from_the_cause_to_the_effect(tmp_path: Path) -> None:
    recording = recorded(tmp_path, training(comm=100))
    lanes = lanes_of(recording)
    assert list(lanes) == ["your lines", "device idle", "main thread", "runtime calls", "device 0 stream 7"]
    assert seen(lanes["main thread"]) == [
        (0, 300, "wait", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        (300, 350, "op", "aten::mm"), (950, 990, "annotation", "Optimizer.step#SGD.step")]  # fmt: skip
    assert seen(lanes["device 0 stream 7"]) == [
        (320, 520, "kernel", "volta_sgemm_128x64"), (520, 620, "communication", "ncclDevKernel_AllReduce_Sum_f32"),
    ]  # fmt: skip
    assert seen(lanes["runtime calls"]) == [
        (310, 315, "call", "cudaLaunchKernel"),
        (330, 335, "call", "cudaLaunchKernel"),
    ]
    assert seen(lanes["device idle"]) == [
        (0, 300, "data_wait", "waits for data"), (300, 320, "launch", "ops that launch"),
        (620, 1000, "host", "Python and native code")]  # fmt: skip
    drawn = timeline(profiled_window(recording))
    assert drawn is not None and dict(drawn.idle) == {"data_wait": 300 * US, "launch": 20 * US, "host": 380 * US}
    first = lanes["your lines"].rows[0][0]
    assert first.start == 0 and first.said.where is not None and first.said.where.line == 30


def test_the_step_of_median_length_is_drawn(tmp_path: Path) -> None:
    events = []
    for i, (begin, length) in enumerate(((0, 1000), (1000, 5000), (6000, 3000))):
        events += [event(f"ProfilerStep#{i}", begin, length, "user_annotation"), event("aten::mm", begin, 10 * (i + 1))]
    found = timeline(profiled_window(recorded(tmp_path, events)))
    assert found is not None and (found.number, found.num_steps, found.ns) == (3, 3, 3000 * US)
    assert seen(found.lanes[1]) == [(0, 30, "op", "aten::mm")]


def test_a_step_of_a_cpu_shows_its_lines_and_what_lies_between_its_ops(tmp_path: Path) -> None:
    clock = Timeline()
    with clock.window(), clock.frame("main"):
        for _ in range(3):
            clock.line(10)
            with clock.wait():
                clock.run(40 * US)
            clock.line(11, 30 * US)
            with clock.op("aten::linear", (8, 16)):
                clock.run(5 * US)
                clock.leaf("aten::mm", 20 * US, (8, 16), (16, 4))
            clock.boundary()
    lanes = lanes_of(clock.recording(tmp_path))
    assert [(s.start / US, s.end / US, s.said.where.line) for s in lanes["your lines"].rows[0] if s.said.where] == [
        (0, 40, 10), (40, 95, 11)]  # fmt: skip
    assert seen(lanes["no op runs"]) == [
        (0, 40, "data_wait", "waits for data"),
        (40, 70, "host", "Python and native code"),
    ]
    assert seen(lanes["main thread"], 1) == [(75, 95, "op", "aten::mm")]
    inner = lanes["main thread"].rows[1][0].said
    assert inner.shapes == "8x16 16x4" and inner.where is not None and inner.where.line == 11


def test_the_main_thread_comes_first_whatever_the_backward_pass_does(tmp_path: Path) -> None:
    events = [event(f"ProfilerStep#{i}", 1000 * i, 1000, "user_annotation") for i in range(2)]
    for i in range(2):
        events.append(event("aten::mm", 1000 * i + 10, 90))
        events += [event("autograd::engine::evaluate_function: MmBackward0", 1000 * i + 200 + 20 * j, 15, tid=2)
                   for j in range(30)]  # fmt: skip
    names = list(lanes_of(recorded(tmp_path, events)))
    assert names == ["no op runs", "main thread", "thread 2"]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    events = [event("ProfilerStep#0", 0, 1000, "user_annotation")]
    events += [event(f"deep{i}", 10 + i, 800 - 2 * i) for i in range(DEPTH + 3)]
    events += [event("aside", 10, 100 - i, tid=100 + i) for i in range(THREADS + 2)]
    events += [event("cudaLaunchKernel", 20, 5, "cuda_runtime", correlation=i) for i in range(1)]
    for i in range(STREAMS + 4):
        work = kernel("k", 100, 100 - i, -1)
        events.append(work | {"tid": i, "args": work["args"] | {"stream": i}})
    found = timeline(profiled_window(recorded(tmp_path, events)))
    assert found is not None
    streams = [lane for lane in found.lanes if lane.name.startswith("device 0")]
    assert len(streams) == STREAMS and streams[0].name == "device 0 stream 0"
    main = next(lane for lane in found.lanes if lane.name == "main thread")
    assert len(main.rows) == DEPTH and found.left_out == 3 + 3 + 4
    drawn = sum(piece.num for lane in found.lanes for row in lane.rows for piece in row)
    assert drawn == found.num_events


def allocation(ts: float, num_bytes: int, total: int) -> Event:
    args = {
        "Device Type": 1,
        "Device Id": 0,
        "Addr": 1,
        "Bytes": num_bytes,
        "Total Allocated": total,
        "Total Reserved": 9,
    }
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": args,
    }


def test_memory_over_the_step_keeps_the_most_of_each_stretch(tmp_path: Path) -> None:
    held = [(100.0, 700), (1990.0, 500), (2200.0, 800), (2200.5, 9000), (2201.0, 800), (2700.0, 300), (3500.0, 5)]
    told, before = [], 0
    for at, whole in held:
        told.append(allocation(at, whole - before, whole))
        before = whole
    found = timeline(profiled_window(recorded(tmp_path, [*marked_steps(), *told])))
    assert found is not None and found.number == 3
    assert found.memory == ((0, 500), (200_500, 9000), (700_000, 300), (1_000_000, 300))
    plain = timeline(profiled_window(recorded(tmp_path, marked_steps())))
    assert plain is not None and plain.memory == ()


def marked_steps() -> list[Event]:
    """Steps of 900, 1100, 1000 and 1200 us: the third is the median one, from 2000 us on."""
    events, at = [], 0
    for i, length in enumerate((900, 1100, 1000, 1200)):
        events += [event(f"ProfilerStep#{i}", at, length, "user_annotation"), event("aten::mm", at + 5, 10)]
        at += length
    return events


def test_without_a_profiled_step_there_is_none(tmp_path: Path) -> None:
    clock = Timeline()
    clock.plain_steps(MS, MS, MS)
    assert timeline(profiled_window(clock.recording(tmp_path))) is None


def track(pairs: list[tuple[int, int]], kinds: str = "") -> Track:
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    return Track(edges[:, 0], edges[:, 1], list(kinds or "o" * len(pairs)), lambda row: Said(f"op{row}"))


def test_neighbours_that_are_narrow_are_one_and_the_longest_is_named() -> None:
    found = track([(0, 1), (2, 5), (6, 7), (10, 11), (12, 40), (41, 42)]).slices(10)
    assert found == [
        Slice(0, 7, "o", 3, 5, Said("op1")), Slice(10, 11, "o", 1, 1, Said("op3")),
        Slice(12, 40, "o", 1, 28, Said("op4")), Slice(41, 42, "o", 1, 1, Said("op5"))]  # fmt: skip


def test_of_several_kinds_that_are_joined_the_longest_ones_is_shown() -> None:
    (found,) = track([(0, 1), (2, 9), (10, 12)], "aba").slices(100)
    assert found == Slice(0, 12, "b", 3, 10, Said("op1"))


def test_nothing_is_lost_by_joining() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        edges = np.sort(draw.integers(0, 10_000, 2 * 300)).reshape(-1, 2)
        row = Track(edges[:, 0], edges[:, 1], draw.choice(["a", "b"], 300).tolist(), lambda row: Said(""))
        for width in (1, 7, 100, 10**6):
            found = row.slices(width)
            assert sum(piece.num for piece in found) == 300 and row.count(width) == len(found)
            assert sum(piece.busy_ns for piece in found) == (edges[:, 1] - edges[:, 0]).sum()
            assert all(piece.busy_ns <= piece.end - piece.start for piece in found)
            assert all(a.end <= b.start for a, b in itertools.pairwise(found))


def test_a_row_of_nothing_has_nothing() -> None:
    assert track([]).slices(5) == [] and track([]).count(5) == 0 and width_for([track([])], 100, 1) == 1
    rows = [track([(0, 1)]), track([(0, 1)])]
    assert width_for(rows, 64, 1) == 64 and width_for(rows, 64, 2) == 1, "no wider than the step"


def test_there_are_never_more_slices_than_can_be_looked_at() -> None:
    rows = [track([(10 * i, 10 * i + 5) for i in range(20_000)]) for _ in range(3)]
    width = width_for(rows, 200_000, 1000)
    assert 10 < sum(row.count(width) for row in rows) <= 1000 < sum(row.count(width // 2) for row in rows)


def many(num: int) -> list[Event]:
    """One step of `num` ops and kernels of a microsecond."""
    events = [event("ProfilerStep#0", 0, 2 * num, "user_annotation")]
    for i in range(num // 2):
        events.append(event(f"aten::op{i % 50}", 4 * i, 1, **{"Input Dims": [[i % 97, 64]], "Input type": ["float"]}))
        events.append(kernel(f"void some_long_kernel_name<float, {i % 50}>(int, float*)" * 2, 4 * i + 1, 1, -1))
    return events


def test_of_fifty_thousand_events_a_page_of_one_and_a_half_megabytes_is_made(tmp_path: Path) -> None:
    from gobrrr.cli.main import main

    source, target = write(tmp_path / "many.json", many(50_000)), tmp_path / "page.html"
    found = timeline(profiled_window(of_trace(read(Source(str(source))))))
    assert found is not None and found.num_events >= 50_000
    assert 500 < sum(len(row) for lane in found.lanes for row in lane.rows) <= MOST
    assert main(["diagnose", str(source), "-o", str(target)]) == 0
    assert "along the line of time" in target.read_text() and target.stat().st_size < 1_500_000


def blame(recording: Recording) -> tuple[dict[str, float], dict[str, float], Any, Ints]:
    """Idle ns by cause: of the stretches, and of the ledger; the stretches; all idle."""
    window, trace = recording.window("profile"), recording.trace
    assert window is not None and trace is not None
    places = replay(window.lines, window.offset)
    host = host_ops(recording, window, trace, places)
    told = device_ledger(trace, host, places, host.num_steps, "x")
    assert told is not None
    begin, end = int(host.spans[0, 0]), int(host.spans[-1, 1])
    kernels = trace.kernels.take((trace.kernels.start >= begin) & (trace.kernels.start < end))
    idle = gaps(union(as_spans(kernels.start, kernels.dur)), begin, max(end, int((kernels.start + kernels.dur).max())))
    pieces = blamed(trace, idle, stalls(kernels, trace.runtime, idle), host, places)
    sums = {name: float((spans[:, 1] - spans[:, 0]).sum()) for name, spans in pieces.items()}
    return sums, {name: ns * host.num_steps for name, ns in told[0].idle_by_cause}, pieces, idle


def check_blame(recording: Recording) -> None:
    drawn, counted, pieces, idle = blame(recording)
    assert drawn == pytest.approx(counted)
    spans = np.concatenate(list(pieces.values()))
    spans = spans[np.argsort(spans[:, 0])]
    assert (spans[1:, 0] >= spans[:-1, 1]).all()
    assert (spans[:, 1] - spans[:, 0]).sum() == total(idle)


@pytest.mark.parametrize("fields", [{}, {"wait": 10, "own": 200}, {"comm": 150, "own": 50}], ids=str)
def test_the_stretches_of_idle_are_the_ledgers(tmp_path: Path, fields: dict[str, int]) -> None:
    check_blame(recorded(tmp_path, training(**fields)))


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces: set GOBRRR_TRACES")
@pytest.mark.parametrize(
    "name", ["kineto/v100_resnet50_workers0", "hta/v100_trace_diff_test", "tracelens/mi300_qwen_0.5b",
             "tracelens/vllm_prefilldecode_graph_replay", "hta/a100_2rank_nccl_metadata"],
)  # fmt: skip
def test_the_stretches_of_idle_are_the_ledgers_in_real_traces(name: str) -> None:
    recording = of_trace(read(Source(str(TRACES / f"{name}.json.gz"))))
    check_blame(recording)
    found = timeline(profiled_window(recording))
    assert found is not None
    assert all(0 <= p.start <= p.end <= found.ns for lane in found.lanes for row in lane.rows for p in row)
