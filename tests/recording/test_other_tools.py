"""What other tools wrote is named in one line, and none of it is read as something else.

The samples are cut to a few events in the form of files that the tools wrote, which are listed in
benchmarks/results/traces-of-tools-2026-11-30.md.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gobrrr.cli.main import main
from gobrrr.errors import TraceError
from gobrrr.recording.trace_files.sources import Source, read

XLA = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "Stream #2"}},
    {"ph": "X", "pid": 1, "tid": 2, "ts": 9.5, "dur": 2.9, "name": "wrapped_convert.kd", "args": {"hlo_op": "convert"}},
    {"ph": "X", "pid": 701, "tid": 7, "ts": 6.0, "dur": 5.5, "name": "hipModuleLaunchKernel"},
]
ROCPROF = [
    {},
    {"args": {"name": "CPU HIP API"}, "ph": "M", "pid": 2, "name": "process_name", "sort_index": 0},
    {"ph": "X", "name": "add", "pid": "10", "tid": "1", "ts": "622", "dur": "3431", "args": {"BeginNs": "622"}},
    {"ts": 622, "ph": "s", "cat": "DataFlow", "id": 0, "pid": 2, "tid": 19147, "name": "dep"},
]
DISPATCH = {"kind": 11, "start_timestamp": 63857982592000, "end_timestamp": 63857982594840}
ASCEND = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0},
    {"ph": "s", "bp": "e", "name": "torch_to_npu", "id": 1, "pid": 1, "tid": 1, "ts": 1.0, "cat": "async_npu"},
    {"ph": "X", "name": "Add", "pid": 2, "tid": 3, "ts": 8.0, "dur": 50.0, "args": {"Task Type": "AI_VECTOR_CORE"}},
]
FILES = {
    "vm.trace.json.gz": (gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": XLA}).encode()), "XLA"),
    "perfetto_trace.json": (json.dumps({"traceEvents": XLA}, separators=(",", ":")).encode(), "XLA"),
    "vm.xplane.pb": (b"\n\x8a\x01\x08\x01\x12\x0e/host:metadata", "XLA"),
    "results.json": (json.dumps({"traceEvents": ROCPROF}).encode(), "rocprof"),
    "908_results.json": (json.dumps({"rocprofiler-sdk-tool": [{"buffer_records": [DISPATCH]}]}).encode(), "rocprofv3"),
    "results.stats.csv": (b'"Name","Calls","TotalDurationNs","AverageNs"\n"add",1,3431611,3431611\n', "rocprof"),
    "out.csv": (b'Index,KernelName,gpu-id,queue-id\n0,"add [clone .kd]",4,0\n', "rocprof"),
    "run.pftrace": (b"\n\x1b\x18\x01", "Perfetto"),
    "trace_view.json": (json.dumps(ASCEND).encode(), "Ascend"),
    "a.ncu-rep": (b"NVR\0", "Nsight Compute"),
    "a.qdstrm": (b"QDSTRM", "not yet imported"),
    "renamed.json": (b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)", "Nsight Systems' own format"),
    "nsys.json": (b'{"data":["[Unknown]","[kernel.kallsyms]","[Max depth]"]}\n', "of another type"),
    "a.nvvp": (b"anything", "nvprof"),
}
DATABASES = {
    "28_results.db": (["rocpd_kernel_dispatch_00003fdc_92cb", "rocpd_string_00003fdc_92cb"], "rocprofv3"),
    "results.db": (["HIP", "OPS", "COPY", "KERN"], "rocprof"),
    "prof.sqlite": (["StringTable", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME"], "nvprof"),
    "dlprof_dldb.sqlite": (["dictionary", "read_only_cuda_calls"], "DLProf"),
    "places.sqlite": (["moz_places"], "no export of Nsight Systems"),
}


def refused(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(TraceError) as caught:
        read(Source(str(file)))
    assert main(["diagnose", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 2 and "hint: " in told and len(caught.value.hint.split()) <= 25
    return caught.value.message


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_tool_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, who = FILES[name]
    (tmp_path / name).write_bytes(content)
    assert who in refused(tmp_path / name, capsys)


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_of_another_tool_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables, who = DATABASES[name]
    with sqlite3.connect(tmp_path / name) as db:
        for table in tables:
            db.execute(f"CREATE TABLE {table} (start INT, end INT)")
    db.close()
    assert who in refused(tmp_path / name, capsys)


def test_what_torch_profiler_wrote_is_read_whatever_its_processes_are_called(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [*XLA[:2], *ROCPROF[1:2], *ASCEND[:1]]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    trace = read(Source(str(tmp_path / "trace.json")))
    assert [trace.name(int(number)) for number in trace.ops.name] == ["aten::add"]
