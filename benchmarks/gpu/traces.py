"""Traces that torch.profiler writes of the planted programs, read back by `gobrrr diagnose` and counted by hand."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.plants import PLANTS
from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting, run

TRACED = Path(__file__).parent / "started" / "traced.py"
STEPS = 40
NAMES = ("sync_item", "pageable_copies", "launch_bound", "hand_made_attention")
ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
Span = tuple[float, float]


def read_back(name: str, setting: Setting) -> Row:
    """Step and busy share by gobrrr, by the program's own clocks and by hand."""
    script = next(plant for plant in PLANTS if plant.name == name).script("sick")
    with tempfile.TemporaryDirectory(prefix="gobrrr-trace-") as scratch:
        trace, steps = Path(scratch) / "trace.json", Path(scratch) / "steps.json"
        run([str(TRACED), str(trace), str(steps), str(script), "--steps", str(STEPS)])
        report = json.loads(run(["-m", "gobrrr", "diagnose", str(trace), "--format", "json"]))
        events, clocks = json.loads(trace.read_text())["traceEvents"], json.loads(steps.read_text())
        return {"bytes": trace.stat().st_size, **compared(report, events, clocks)}


def compared(report: dict[str, Any], events: list[dict[str, Any]], clocks: dict[str, list[float]]) -> dict[str, Any]:
    """Of one trace: what gobrrr says beside what others say. Times in ms; a device's figures null where none worked."""
    device = report.get("device")
    return {
        "step_ms": report["step"]["plain_wall_ns"] / 1e6,
        "step_by_hand_ms": step_ms(events),
        "clock_ms": statistics.median(clocks["host_ms"]),
        "events_ms": statistics.median(clocks["device_ms"]) if clocks["device_ms"] else None,
        "busy": device["busy_share"] if device else None,
        "busy_by_hand": busy_share(events),
        "findings": [finding["code"] for finding in report["findings"]],
    }


def step_ms(events: list[dict[str, Any]]) -> float:
    """Median of the profiled steps, from start to start; the last one has its own end."""
    steps = sorted(_steps(events))
    ends = [*(start for start, _ in steps[1:]), steps[-1][1]]
    return statistics.median(end - start for (start, _), end in zip(steps, ends, strict=True)) / 1e3


def _steps(events: list[dict[str, Any]]) -> list[Span]:
    return [
        _span(e) for e in events
        if e.get("ph") == "X" and e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")
    ]  # fmt: skip


def busy_share(events: list[dict[str, Any]]) -> float | None:
    """Of the profiled steps, the share in which the device ran something: kernels, copies and sets, overlaps once."""
    steps, work = _steps(events), [_span(e) for e in events if e.get("ph") == "X" and e.get("cat") in ON_DEVICE]
    if not steps or not work:
        return None
    start, end = min(a for a, _ in steps), max(b for _, b in steps)
    return union([(max(a, start), min(b, end)) for a, b in work if b > start and a < end]) / (end - start)


def union(spans: list[Span]) -> float:
    """Length of what at least one span covers."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _span(event: dict[str, Any]) -> Span:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])
