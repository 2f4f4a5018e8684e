"""The accelerator's memory, from allocations counted by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.memory import device_memory
from gobrrr.ledger.model.device import DeviceLedger, DeviceMemory
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.recording.model.facts import Facts
from gobrrr.recording.trace_files.kineto import read_trace
from gobrrr.recording.trace_files.offline import of_trace
from gobrrr.recording.trace_files.sources import Source, read
from gobrrr.report.text.report import render
from gobrrr.rules.verdict.build import build
from tests.ledger.test_device_ledger import host, places
from tests.support.handmade import MS, Case

MIB = 1 << 20
CUDA, CPU = 1, 0


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def memory(ts: float, num_bytes: int, total: int | None, device: int = CUDA, reserved: int = 0) -> dict[str, Any]:
    totals = {} if total is None else {"Total Allocated": total, "Total Reserved": reserved}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts,
            "args": {"Bytes": num_bytes, "Addr": 5, "Device Id": 0, "Device Type": device, **totals}}  # fmt: skip


def ledger(folder: Path, *events: dict[str, Any], steps: int = 4) -> Ledger:
    """Steps of 1000 us with a kernel each."""
    every = [*events]
    for step in range(steps):
        ts = 1000 * step
        every += [
            event("user_annotation", f"ProfilerStep#{step}", ts, 1000),
            event("cpu_op", "aten::mm", ts + 100, 100), event("cpu_op", "aten::empty", ts + 110, 5),
            event("cuda_runtime", "cudaLaunchKernel", ts + 120, 5, correlation=step + 1),
            event("kernel", "gemm", ts + 130, 50, tid=7, correlation=step + 1, device=0, stream=7),
        ]  # fmt: skip
    document = {"schemaVersion": 1, "traceEvents": every,
                "deviceProperties": [{"id": 0, "name": "NVIDIA X", "totalGlobalMem": 1000 * MIB}]}  # fmt: skip
    file = folder / "trace.json.gz"
    file.write_bytes(gzip.compress(json.dumps(document).encode()))
    return build_ledger(Profiled(of_trace(read(Source(str(file))))), UNKNOWN)


def test_the_peak_is_the_devices_with_the_op_that_asked_for_it(tmp_path: Path) -> None:
    found = ledger(
        tmp_path,
        memory(50, 100 * MIB, 100 * MIB, reserved=120 * MIB), memory(112, 200 * MIB, 300 * MIB, reserved=350 * MIB),
        memory(180, -200 * MIB, 100 * MIB, reserved=350 * MIB), memory(150, 9000 * MIB, 9000 * MIB, device=CPU),
    ).device.memory  # fmt: skip
    assert (found.peak, found.reserved, found.capacity) == (300 * MIB, 350 * MIB, 1000 * MIB)
    assert found.op == "aten::mm" and not found.since_start  # empty only made it for the product
    assert found.growth_per_step == 0 and found.driver_calls == 0


def test_what_no_op_asked_for_has_no_op(tmp_path: Path) -> None:
    """On a thread that runs none, though the last op of all is an empty inside of another."""
    found = ledger(tmp_path, memory(50, 100 * MIB, 100 * MIB), memory(500, 900 * MIB, 1000 * MIB) | {"tid": 9})
    assert found.device.memory.peak == 1000 * MIB and found.device.memory.op == ""


def test_without_totals_what_came_and_went_is_added_up(tmp_path: Path) -> None:
    found = ledger(tmp_path, memory(50, 100 * MIB, None), memory(112, 200 * MIB, None), memory(180, -250 * MIB, None))
    assert found.device.memory.peak == 300 * MIB and found.device.memory.since_start
    assert found.device.memory.reserved is None


def test_only_what_every_step_leaves_is_growth(tmp_path: Path) -> None:
    def growing(*left: int) -> float | None:
        total, events = 0, []
        for step, mib in enumerate(left):
            total += mib * MIB
            events.append(memory(1000 * step + 150, mib * MIB, total))
        return ledger(tmp_path, *events, steps=len(left)).device.memory.growth_per_step

    assert growing(500, 5, 6, 7) == 6 * MIB  # the first fills caches; at least 6 from each to the next after it
    assert growing(500, 5, -5, 7) == 0
    assert growing(500, 5) is None


def test_calls_to_the_driver_in_every_step_stall_it(tmp_path: Path) -> None:
    asking = [event("cuda_runtime", "cudaMalloc", 1000 * step + 300, 400) for step in range(4)]
    found = ledger(tmp_path, memory(50, 100 * MIB, 100 * MIB, reserved=120 * MIB), *asking)
    assert found.device.memory.driver_calls == 1
    assert dict(found.device.idle_by_cause)["allocator"] == 400_000
    from gobrrr.rules import judge

    (told,) = [f for f in judge(found, UNKNOWN, strict=True)[0] if f.code == "BRR602"]
    assert told.saving.ceiling_ns == 400_000 and "1 call to the driver" in told.message


def test_without_the_profilers_record_the_allocator_itself_is_believed(tmp_path: Path) -> None:
    """A run that is watched here does not record allocations: of the program's peak it said the process's own."""
    facts = Facts(
        device_peak_bytes=700, device_reserved_bytes=900, device_capacity_bytes=1000, device_growth_per_step=3.0,
        peak_rss_bytes=500,
    )  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        event("cpu_op", "aten::mm", 0, 90), event("cuda_runtime", "cudaMalloc", 20, 5)]}))  # fmt: skip
    trace = read_trace(path)
    found = device_memory(trace, host(trace, 0, 100), places(), facts)
    assert found == DeviceMemory(700, 900, growth_per_step=3.0, driver_calls=1.0, capacity=1000, resident=500)
    assert device_memory(trace, host(trace, 0, 100), places(), Facts()) is None


def of(memory: DeviceMemory, **fields: Any) -> Case:
    device = DeviceLedger("gpu", busy_ns=90 * MS, idle_ns=10 * MS, span_busy_share=0.9, memory=memory, **fields)
    return Case(extra={"device": device})


def test_a_device_that_is_nearly_full_is_told_and_a_half_empty_one_is_not() -> None:
    (found,) = of(DeviceMemory(peak=950 * MIB, capacity=1000 * MIB)).raised("BRR602")
    assert "95.0 %" in found.message and found.severity == "warning"
    assert not of(DeviceMemory(peak=500 * MIB, capacity=1000 * MIB)).raised("BRR602")
    assert not of(DeviceMemory(peak=500 * MIB)).raised("BRR602")


def test_memory_that_every_step_takes_is_told_with_the_steps_that_are_left() -> None:
    (found,) = of(DeviceMemory(peak=500 * MIB, capacity=1000 * MIB, growth_per_step=5.0 * MIB)).raised("BRR601")
    assert "full after 100 more steps" in found.message and found.severity == "critical"
    assert not of(DeviceMemory(peak=500 * MIB, capacity=1000 * MIB, growth_per_step=100.0)).raised("BRR601")


def test_the_report_says_what_the_device_held(tmp_path: Path) -> None:
    found = ledger(tmp_path, memory(112, 200 * MIB, 300 * MIB, reserved=350 * MIB))
    text = render(build(found, None, ()))
    assert "peak 300 MiB of 1000 MiB, 350 MiB reserved" in text and "reached in mm" in text
