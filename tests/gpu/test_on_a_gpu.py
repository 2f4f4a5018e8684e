"""On a CUDA or ROCm device: the device's side of a live run, its ceilings, and a trace of its own read back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device"),
]

PROGRAM = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(512, 2048, device="cuda")
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    if sys.argv[2] == "sync":
        print(loss.item())
"""


def report(folder: Path, *args: str) -> dict[str, Any]:
    """What gobrrr run says of the program."""
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "gobrrr", "run", "--json", "report.json", "train.py", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_a_program_of_large_products_keeps_the_device_busy(tmp_path: Path) -> None:
    found = report(tmp_path, "400", "free")
    assert found["device"]["name"] == torch.cuda.get_device_name()
    assert found["device"]["busy_share"] > 0.5
    assert dict(found["device"]["classes"])["matmul"] > 0.5
    assert sum(a["ns"] for a in found["ledger"]) == pytest.approx(found["step"]["plain_wall_ns"], rel=0.01)


def test_ceilings_of_the_device_are_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gobrrr", "machine", "--json", "--refresh"]
    machine = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    assert machine["device"]["matmul"]["fp32"]["median"] > 1e11
    assert machine["device"]["launch"]["median"] > 0


def test_a_trace_written_here_says_what_torch_counts(tmp_path: Path) -> None:
    """Busy time is the union of kernels, copies and sets, of which none overlap on one stream. The device's side of an
    annotation is none of them: torch lists it as an event of the device, too, from its first kernel to its last."""
    from torch.profiler import ProfilerActivity, profile, schedule

    from gobrrr.machine.model.machine import UNKNOWN
    from gobrrr.pipeline.traces import diagnosed
    from gobrrr.recording.trace_files.limits import DEFAULT
    from gobrrr.recording.trace_files.sources import Source

    model, x = torch.nn.Linear(4096, 4096).cuda(), torch.randn(4096, 4096, device="cuda")
    path = tmp_path / "trace.json"
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=2, warmup=2, active=4),
        on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
    ) as running:  # fmt: skip
        for _ in range(8):
            model(x).sum().backward()
            torch.cuda.synchronize()
            running.step()
    events = json.loads(path.read_text())["traceEvents"]
    listed = sum(e["dur"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    found = diagnosed(Source(str(path)), UNKNOWN, DEFAULT)
    assert found.device is not None
    busy = found.device.busy_share * found.step.plain_wall_ns * found.step.count / 1000
    assert listed and busy == pytest.approx(listed, rel=0.1)


def lowered(name: str) -> tuple[float, dict[str, str]]:
    """Relative error that a remedy's precision gives a product, and what was said of it."""
    from gobrrr.remedies.mechanism.applying import install
    from gobrrr.remedies.mechanism.seams import Seams

    said: dict[str, str] = {}
    seams = Seams(lambda remedy, detail: said.update({remedy: detail}))
    torch.manual_seed(0)
    model, x = torch.nn.Linear(256, 256).cuda(), torch.randn(64, 256, device="cuda")
    expected = model(x)
    install(seams, [name])
    try:
        found = model(x)
    finally:
        seams.remove()
    assert found.dtype == torch.float32
    return float((found - expected).norm() / expected.norm()), said


def test_bfloat16_takes_hold_on_the_device() -> None:
    error, said = lowered("bf16_autocast")
    assert said and 1e-5 < error < 2e-2


def test_products_come_near_the_data_sheet_and_memory_has_its_peak(tmp_path: Path) -> None:
    """A large bf16 product reaches a third of the sheet at least, and no op beats it."""
    from torch.profiler import ProfilerActivity, profile

    from gobrrr.machine.model.machine import UNKNOWN
    from gobrrr.machine.model.peaks import peak_of
    from gobrrr.pipeline.traces import diagnosed
    from gobrrr.recording.trace_files.limits import DEFAULT
    from gobrrr.recording.trace_files.sources import Source

    peak = peak_of(torch.cuda.get_device_name())
    if peak is None or not peak.flop_rate("bf16"):
        pytest.skip("no data sheet of this device, or no bfloat16")
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    (a @ a).sum()
    torch.cuda.synchronize()
    with profile(activities=activities, record_shapes=True, profile_memory=True) as running:
        for _ in range(5):
            (a @ a).relu()
        torch.cuda.synchronize()
    path = tmp_path / "trace.json"
    running.export_chrome_trace(str(path))
    device = diagnosed(Source(str(path)), UNKNOWN, DEFAULT).device
    assert device is not None and device.memory is not None
    product = next(op for op in device.work if op.name == "aten::mm")
    assert (peak.flop_rate("bf16") or 0) / 3 < 1e9 * product.flops / product.ns < (peak.flop_rate("bf16") or 0)
    assert device.memory.peak >= 3 * a.numel() * a.element_size()


def test_the_peak_of_a_block_is_the_devices_own() -> None:
    from gobrrr.trial.arm.meters import Peak

    held, gauge = torch.empty(64 << 20, dtype=torch.uint8, device="cuda"), Peak()
    del held
    gauge.begin(True)
    before = gauge.end()["peak_bytes"]
    held = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    del held
    assert gauge.end()["peak_bytes"] - before == 256 << 20
