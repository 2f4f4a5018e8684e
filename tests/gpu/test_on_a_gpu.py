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
    """Busy time is the union of the kernels that torch's own profiler lists, of which none overlap on one stream."""
    from torch.profiler import ProfilerActivity, profile, schedule

    from gobrrr.cli.diagnose import diagnosed
    from gobrrr.machine.unknown import UNKNOWN
    from gobrrr.recording.limits import DEFAULT
    from gobrrr.recording.sources import Source

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
    listed = sum(e.self_device_time_total for e in running.events() if "CUDA" in str(e.device_type))
    found = diagnosed(Source(str(path)), UNKNOWN, DEFAULT)
    assert found.device is not None
    busy = found.device.busy_share * found.step.plain_wall_ns * found.step.count / 1000
    assert busy == pytest.approx(listed, rel=0.1)


def test_the_device_remedies_take_hold() -> None:
    from gobrrr.remedies.seams import Seams

    said: dict[str, str] = {}
    seams = Seams(lambda name, detail: said.update({name: detail}))
    seams.install(["bf16_autocast"])
    try:
        model = torch.nn.Linear(64, 64).cuda()
        assert model(torch.randn(8, 64, device="cuda")).dtype == torch.bfloat16
    finally:
        seams.remove()
    assert "bf16_autocast" in said
