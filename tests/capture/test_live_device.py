"""A run that is watched here, on a device: from its journal and its trace to the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.device.waits_replayed import LIGHTER
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.judging import judged
from gobrrr.rules import judge
from gobrrr.rules.verdict.report import Report
from tests.ledger.test_devicesteps import played
from tests.support.timelines import MS, OFFSET, PID, US, Timeline

KERNEL = 22_500 * US
GEMM = "void at::native::gemm<float>(float*)"


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
    return build_ledger(Profiled(clock.recording(folder)), UNKNOWN)


def replayed(folder: Path, wall_us: int, kernel_us: int) -> tuple[Ledger, Report]:
    """Steps that copy a batch and replay a graph of 20 kernels, and what is said of them."""
    clock = Timeline(kind=6)
    clock.plain_steps(*[wall_us * US] * 300)
    with clock.window(), clock.frame("main"):
        for number in range(8):
            begun = clock.now
            with clock.op("aten::copy_", (64, 64), (64, 64)):
                clock.run(10 * US)
            event(clock, "cuda_runtime", "cudaGraphLaunch", clock.now, 5 * US, number)
            for kernel in range(20):
                at = clock.now + (8 + kernel * kernel_us) * US
                event(
                    clock,
                    "kernel",
                    GEMM,
                    at,
                    kernel_us * US,
                    number,
                    device=0,
                    stream=7,
                )
            clock.run(wall_us * US - (clock.now - begun))
            clock.boundary()
    return judged(Profiled(clock.recording(folder)), UNKNOWN)


def test_what_binds_replayed_steps_is_how_much_the_device_works(tmp_path: Path) -> None:
    """Which op its kernels belong to cannot be told; how long they and the step take can."""
    ledger, report = replayed(tmp_path, 1000, 45)
    assert ledger.step.kind == "replayed" and ledger.device is not None and ledger.device.replayed_share == 1
    assert ledger.device.busy_ns == pytest.approx(900 * US) and ledger.account("uncounted") == pytest.approx(900 * US)
    assert report.verdict.bound == "compute" and "works 0.9 of each 1.00 ms" in report.verdict.sentence
    assert "longest kernel: gemm<float>, 900 us" in report.verdict.sentence
    assert [found.severity for found in report.findings if found.code == "BRR909"] == ["warning"]
    elsewhere = replace(ledger, signals=ledger.signals | {"offline"})
    found, _ = judge(elsewhere, UNKNOWN, strict=True)
    assert [each.severity for each in found if each.code == "BRR909"] == ["critical"], "what its steps are is not known"


def test_short_kernels_of_a_graph_are_not_launched_one_by_one(tmp_path: Path) -> None:
    """What the device idles for is the Python between two replays."""
    ledger, report = replayed(tmp_path, 1000, 5)
    assert ledger.device is not None and ledger.device.short_kernel_share == 0
    assert report.verdict.bound == "host" and "BRR504" not in {found.code for found in report.findings}


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
    freed, shorter = zip(*found.device.lighter, strict=True)
    assert freed == pytest.approx([share * 22.5 * MS for share in LIGHTER], rel=0.01)
    assert shorter == pytest.approx(freed, rel=0.05), "the host waits for all of it"
