"""Figures that other tools published of real GPU traces come out of the columns: times, links, windows, classes.

The traces are data of other projects, in the folder that GOBRRR_TRACES names, by default ../shared/traces.
"""

from __future__ import annotations

import io
import os
import tarfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from gobrrr.recording.model import trace as tr
from gobrrr.recording.model.call_tree import nest_threads
from gobrrr.recording.model.trace import Kernels, Trace
from gobrrr.recording.trace_files.kineto import read_stream, read_trace

FOLDER = Path(os.environ.get("GOBRRR_TRACES") or Path(__file__).parents[2] / ".." / "shared" / "traces")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no real traces: set GOBRRR_TRACES to their folder")


@lru_cache(maxsize=2)
def load(name: str) -> Trace:
    return read_trace(FOLDER / f"{name}.json.gz")


def union(kernels: Kernels) -> int:
    """ns in which at least one of the events ran."""
    ends = np.maximum.accumulate(kernels.start + kernels.dur)
    return int(ends[-1] - kernels.start[0] - np.maximum(kernels.start[1:] - ends[:-1], 0).sum())


def linked(trace: Trace) -> Kernels:
    return trace.kernels.take(np.isin(trace.kernels.correlation, trace.runtime.correlation))


def busy_share(kernels: Kernels) -> float:
    """Percent of the span from the first to the last device event."""
    return 100 * union(kernels) / int((kernels.start + kernels.dur).max() - kernels.start[0])


@pytest.mark.parametrize(
    ("workers", "kernel_ms", "memcpy_ms", "loader_ms"),
    [(0, 98.589, 1.915, 59.262), (4, 99.145, 3.160, 1.186)],
)
def test_v100_resnet_of_2021(workers: int, kernel_ms: float, memcpy_ms: float, loader_ms: float) -> None:
    trace = load(f"kineto/v100_resnet50_workers{workers}")
    assert trace.steps.number.tolist() == [5, 6, 7, 8, 9, 10]
    kernels = trace.kernels
    assert kernels.dur[kernels.kind == tr.KERNEL].sum() / 6e6 == pytest.approx(kernel_ms, abs=5e-4)
    assert kernels.dur[kernels.kind == tr.MEMCPY].sum() / 6e6 == pytest.approx(memcpy_ms, abs=5e-4)
    loader = [i for i, name in enumerate(trace.names) if name.startswith("enumerate(DataLoader)")]
    waits = trace.ops.take(np.isin(trace.ops.name, loader))
    assert set(waits.kind.tolist()) == {tr.USER_ANNOTATION}
    assert waits.dur.sum() / 6e6 >= loader_ms  # that tool takes out what overlaps with device work
    assert trace.signals >= {"ops", "shapes", "stacks", "device", "links", "memory", "steps"}
    assert any("resnet50_profiler_api.py" in stack for stack in trace.stacks)
    assert not trace.skipped and not trace.note


@pytest.mark.parametrize(
    ("name", "busy", "num_unlinked"),
    [
        ("tracelens/h100_bert_small", 7.92, 0),
        ("tracelens/h100_timesformer", 99.03, 0),
        ("tracelens/mi300_vit_falconsai", 24.99, 0),
        ("tracelens/mi300_qwen_0.5b", 89.78, 463),
    ],
)
def test_busy_shares_that_tracelens_published(name: str, busy: float, num_unlinked: int) -> None:
    trace = load(name)
    assert busy_share(linked(trace)) == pytest.approx(busy, abs=0.006)
    assert len(trace.kernels) - len(linked(trace)) == num_unlinked
    assert trace.signals >= {"python", "stacks", "shapes", "memory", "device"}


def test_bert_has_58_short_kernels_of_60() -> None:
    trace = load("tracelens/h100_bert_small")
    durations = trace.kernels.dur[trace.kernels.kind == tr.KERNEL]
    assert (len(durations), int((durations < 10_000).sum())) == (60, 58)
    assert trace.steps.dur.tolist() == [4_426_114]


def test_ddp_with_nanoseconds() -> None:
    """HTA counts what the first four steps launched, and its trace ends where the last step begins."""
    trace = load("hta/v100_ddp_ns_resolution")
    launch = dict(zip(trace.runtime.correlation.tolist(), trace.runtime.start.tolist(), strict=True))
    launched = np.array([launch[c] for c in trace.kernels.correlation.tolist()])
    steps = list(zip(trace.steps.start.tolist(), trace.steps.dur.tolist(), strict=True))
    per_step = [int(((launched >= s) & (launched < s + d)).sum()) for s, d in steps]
    assert per_step == [1219] * 5 and sum(per_step[:4]) == 4876
    optimizer = trace.ids("Optimizer.step#SGD.step")
    spans = trace.device_annotations.take(np.isin(trace.device_annotations.name, optimizer))
    spans = spans.take(spans.start < steps[-1][0])
    kernels = trace.kernels
    inside = [
        ((kernels.start >= s) & (kernels.start + kernels.dur <= s + d)).sum()
        for s, d in zip(spans.start, spans.dur, strict=True)
    ]
    assert sum(inside) == 27
    assert len(set((trace.ops.start % 1000).tolist())) > 900  # nanoseconds, not the 250 that a double would keep
    assert trace.signals >= {"flows", "links"} and trace.properties.rank == 0


def test_collectives_carry_their_own_metadata() -> None:
    trace = load("hta/a100_2rank_nccl_metadata")
    collectives = trace.kernels.take(trace.kernels.kind == tr.COMMUNICATION)
    said = [trace.collectives[i] for i in collectives.collective.tolist() if i >= 0]
    assert {c.name for c in said} == {"allreduce", "broadcast"} and {c.group_size for c in said} == {2}
    assert trace.properties.world_size == 2


def test_eight_dlrm_ranks_in_one_archive() -> None:
    steps = {}
    with tarfile.open(FOLDER / "param" / "v100_dlrm_8_ranks.tar.gz") as archive:
        for member in archive.getmembers():
            if not member.isfile():
                continue
            data = archive.extractfile(member)
            assert data is not None
            trace = read_stream(io.BytesIO(data.read()), member.size, member.name)
            assert trace.properties.world_size == 8 and trace.properties.rank is not None
            steps[trace.properties.rank] = trace.steps.dur.tolist()
            assert (trace.kernels.kind == tr.COMMUNICATION).sum() == 8
    assert sorted(steps) == list(range(8))
    assert (min(steps.values()), max(steps.values())) == ([12_509_000], [19_901_000])


@pytest.mark.parametrize(
    ("name", "signals"),
    [
        ("hta/cpu_only", {"ops", "shapes", "steps"}),
        ("hta/distributed_info_missing", {"ops", "shapes", "steps"}),
        ("hta/mi250_rocm62_toy_train", {"ops", "shapes", "steps", "device", "links", "flows"}),
        ("hta/simple_add_critical_path", {"ops", "device", "links"}),
        ("hta/alexnet_critical_path", {"ops", "device", "links"}),
        ("hta/alexnet_cupti_counters", {"ops"}),
        ("tracelens/torch_compile_triton", {"ops", "shapes", "device", "links"}),
        ("tracelens/vllm_prefilldecode_graph_replay", {"ops", "shapes", "stacks", "python", "device", "links"}),
    ],
)
def test_what_each_trace_has(name: str, signals: set[str]) -> None:
    trace = load(name)
    assert trace.signals == signals
    assert set(trace.skipped) <= {"category not known"} and not trace.note
    nesting = nest_threads(trace.ops.start, trace.ops.dur, trace.ops.thread)
    assert (nesting.self_time >= 0).all() and nesting.num_overlaps < 0.05 * len(trace.ops)
    assert trace.ops.start[0] > 1_500_000_000 * 10**9  # absolute, after 2017


def test_the_pair_to_compare() -> None:
    a100, v100 = load("hta/a100_trace_diff_control"), load("hta/v100_trace_diff_test")
    assert (a100.properties.rank, v100.properties.rank) == (3, 1)
    for trace, shortest, longest in ((a100, 75, 81), (v100, 82, 166)):
        assert (round(trace.steps.dur.min() / 1e6), round(trace.steps.dur.max() / 1e6)) == (shortest, longest)
    shared = {s.shapes for s in a100.signatures} & {s.shapes for s in v100.signatures}
    assert len(shared) > 100
