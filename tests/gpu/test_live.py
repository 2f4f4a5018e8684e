"""On a CUDA or ROCm device: are the step, the work, the waits and the memory that a live run tells those of the device?

Each program measures itself by the device's own events, far longer than the host runs ahead, and says so in the end.
"""

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
kind, width, depth, every = sys.argv[1], *map(int, sys.argv[2:5])
torch.manual_seed(0)
model = nn.Sequential(*(m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU()))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(1024, width, device="cuda")
def step(number):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    if kind == "fetches":
        norms = [p.grad.norm().item() for p in model.parameters()]
    if kind == "keeps":
        norms = [p.grad.norm() for p in model.parameters()]
    optimizer.step()
    if number % every == every - 1:
        print(loss.item(), file=sys.stderr)
def timed(first, count):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for number in range(first, first + count):
        step(number)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count
timed(0, 40)
print(timed(0, 200), torch.cuda.max_memory_allocated())
"""


def run(folder: Path, *args: str) -> tuple[dict[str, Any], float, int]:
    """What gobrrr run says, and step in ms and peak in bytes as the program has them alone."""
    (folder / "train.py").write_text(PROGRAM)
    alone = subprocess.run([sys.executable, "train.py", *args], cwd=folder, capture_output=True, text=True, check=True)
    command = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "--json", "report.json", "train.py", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ms, peak = alone.stdout.split()
    return json.loads((folder / "report.json").read_text()), float(ms), int(peak)


@pytest.mark.parametrize("every", ["1000", "5"])
def test_a_step_is_the_devices_where_the_host_runs_ahead(every: str, tmp_path: Path) -> None:
    """Large products, whose launches take a tenth of their time. A loss is printed never, or each fifth step."""
    found, ms, peak = run(tmp_path, "plain", "4096", "8", every)
    assert found["step"]["plain_wall_ns"] / 1e6 == pytest.approx(ms, rel=0.1)
    assert found["device"]["busy_share"] > 0.9
    assert found["device"]["memory"]["peak"] == pytest.approx(peak, rel=0.01)
    assert "BRR504" not in [finding["code"] for finding in found["findings"]]


def test_numbers_fetched_one_by_one_cost_what_the_step_is_shorter_without_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    found, ms, _ = run(tmp_path / "a", "fetches", "2048", "48", "1000")
    _, without, _ = run(tmp_path / "b", "keeps", "2048", "48", "1000")
    waits = {finding["code"]: finding for finding in found["findings"]}["BRR501"]
    assert waits["where"][0]["line"] == 14
    assert waits["saving"]["low_ns"] / 1e6 <= ms - without <= 1.1 * waits["saving"]["ceiling_ns"] / 1e6
