"""A run that is watched here, on a device: from its journal and its trace to the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.model import Ledger
from gobrrr.machine.unknown import UNKNOWN
from tests.unit.test_devicesteps import played
from tests.unit.timelines import MS, OFFSET, PID, US, Timeline

KERNEL = 22_500 * US


def ledger(folder: Path, plain: list[float], host_ns: int, steps: int = 4, waits: bool = False) -> Ledger:
    """Plain steps of so many ms, then a window whose steps launch one kernel of 22.5 ms each, or wait for it too."""
    clock = Timeline()
    clock.plain_steps(*(int(wall * MS) for wall in plain))
    free = 0
    with clock.window(), clock.frame("main"):
        for number in range(steps):
            with clock.op("aten::mm", (64, 64), (64, 64)):
                free = max(clock.now + 8 * US, free)
                event(clock, "cuda_runtime", "cudaLaunchKernel", clock.now, US, number)
                event(clock, "kernel", "gemm", free, KERNEL, number, device=0, stream=7)
                clock.run(10 * US)
            free += KERNEL
            if waits:
                event(clock, "cuda_runtime", "cudaStreamSynchronize", clock.now, max(0, free + 8 * US - clock.now), 99)
                clock.run(max(0, free + 8 * US - clock.now))
            clock.run(host_ns)
            clock.boundary()
    return build_ledger(clock.recording(folder), UNKNOWN)


def event(clock: Timeline, cat: str, name: str, ts: int, dur: int, number: int, **args: Any) -> None:
    clock.trace.append({
        "ph": "X", "cat": cat, "name": name, "pid": PID, "tid": args.get("stream", PID), "ts": f"@{ts + OFFSET}@",
        "dur": f"@{dur}@", "args": {"correlation": number, **args},
    })  # fmt: skip


def test_where_the_host_runs_ahead_the_step_is_the_devices(tmp_path: Path) -> None:
    """The host launches in 8 ms what the device does in 22.5, and waits for it in every fifth step."""
    found = ledger(tmp_path, played(40, 5).tolist(), 8 * MS)
    assert found.step.averaged and found.wall == pytest.approx(24.1 * MS)
    assert found.device is not None and found.device.busy_ns == pytest.approx(22.5 * MS)
    assert sum(ns for _, ns in found.device.idle_by_cause) == pytest.approx(1.6 * MS, rel=0.01)


def test_a_host_that_is_the_limit_keeps_its_median(tmp_path: Path) -> None:
    found = ledger(tmp_path, [30.0] * 30, 60 * MS)
    assert not found.step.averaged and found.wall == 30 * MS and found.device is not None
    assert found.device.busy_ns == pytest.approx(22.5 * MS) and dict(found.device.idle_by_cause)["sync"] == 0


def test_waits_are_priced_at_the_speed_of_the_plain_step(tmp_path: Path) -> None:
    """Ten of its milliseconds are the host's, 22.5 the device's, one after the other: without the wait the step has
    22.5. In the window the host is three times slower."""
    found = ledger(tmp_path, [32.5] * 30, 30 * MS, steps=8, waits=True)
    assert found.device is not None
    assert dict(found.device.idle_by_cause)["sync"] == pytest.approx(10 * MS, rel=0.05)
