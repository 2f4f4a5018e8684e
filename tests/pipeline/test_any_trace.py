"""Whatever a trace says, its diagnosis adds up or says no in one line."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.cli.main import main
from gobrrr.errors import GobrrrError
from gobrrr.ledger.job.ranks import together
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnose, diagnosed, reduced
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source

NAMES = st.sampled_from([
    "aten::mm", "aten::add_", "aten::item", "ProfilerStep#3", "ProfilerStep#4", "Optimizer.step#AdamW.step",
    "Optimizer.zero_grad#AdamW.zero_grad", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "cudaLaunchKernel", "cudaGraphLaunch",
    "cudaStreamSynchronize", "cudaMalloc", "hipLaunchKernel", "Memcpy HtoD (Pageable -> Device)", "sgemm",
    "ncclDevKernel_AllReduce_Sum_f32", "void at::native::elementwise", "train.py(3): step", "train.py(9): main",
    "nn.Module: Linear_0", "torch/nn/modules/module.py(9): _call_impl", "autograd::engine::evaluate_function: Mm",
    "<built-in method x>", "\x1b[31m", "c10d::allreduce_", "gobrrr.step", "",
])  # fmt: skip
CATS = st.sampled_from([
    "cpu_op", "Operator", "user_annotation", "python_function", "cuda_runtime", "Runtime", "cuda_driver", "kernel",
    "Kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "overhead", "ac2g", "odd",
])  # fmt: skip
TIMES = st.one_of(st.integers(0, 3000), st.floats(0, 3000), st.sampled_from([-5, 0, 1e15, 9e18]))
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": st.integers(-1, 6), "External id": st.integers(0, 6), "stream": st.integers(0, 2),
        "device": st.integers(0, 1), "Sequence number": st.integers(0, 3), "Fwd thread id": st.integers(0, 2),
        "Input Dims": st.just([[4, 4], [4, 4]]), "Input type": st.just(["float", "float"]), "bytes": st.integers(0, 99),
        "Call stack": st.just("train.py(7): f;train.py(9): <module>"), "Python id": st.integers(0, 5),
        "Collective name": st.sampled_from(["allreduce", "broadcast", "send", "_allgather_base", ""]),
        "dtype": st.sampled_from(["Float", "odd"]), "In msg nelems": st.sampled_from([-1, 0, 4, 10**7, 2**62]),
        "Group size": st.sampled_from([-1, 0, 1, 2, 2**62]), "Process Group Name": st.sampled_from(["0", "", 1]),
        "Seq": st.sampled_from([-1, 0, 1, 2**62, "x"]),
    },
)  # fmt: skip
EVENTS = st.lists(
    st.fixed_dictionaries({
        "ph": st.just("X"), "cat": CATS, "name": NAMES, "pid": st.integers(0, 1), "tid": st.integers(0, 2), "ts": TIMES,
        "dur": TIMES, "args": ARGS,
    }),
    max_size=40,
)  # fmt: skip


def write(folder: str, events: list[dict[str, Any]], name: str = "trace.json") -> Path:
    path = Path(folder) / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(events=EVENTS)
def test_it_adds_up_or_says_no(events: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = diagnosed(Source(str(write(folder, events))), UNKNOWN, DEFAULT)
        except GobrrrError as error:
            assert error.message
            return
    total = sum(account.ns for account in found.ledger)
    assert total == pytest.approx(found.step.plain_wall_ns, rel=0.01, abs=2)
    assert all(account.ns >= -2 for account in found.ledger)
    if found.device is not None:
        assert 0 <= found.device.span.busy_share <= 1 and found.device.busy_share >= 0
    for finding in found.findings:
        saving = finding.saving
        assert 0 <= saving.low_ns <= saving.expected_ns <= saving.ceiling_ns < math.inf


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(first=EVENTS, second=EVENTS)
def test_two_of_any_kind_are_a_job_and_can_be_compared(first: list[Any], second: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [write(folder, events, f"r{n}.json") for n, events in enumerate((first, second))]
        job = together([reduced(Source(str(file)), UNKNOWN, DEFAULT) for file in files])
        assert job.verdict and len(job.ranks) == 2
        told = diagnose([str(folder)])
        for one in (one for group in getattr(told, "groups", ()) for one in group.waits):
            assert 0 <= one.late_ns < math.inf and 0 <= one.waiting_ns < math.inf
            assert -1 <= one.exposed_waiting_ns < math.inf and -1 <= one.exposed_transfer_ns < math.inf
        assert main(["compare", *map(str, files), "--format", "json"]) in (0, 2)
        assert main(["diagnose", str(folder), "--jobs", "1"]) in (0, 2)
