"""The dataflow window stays away from programs that torch's observer would kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import time
import torch
began = time.monotonic()
torch.manual_seed(0)
graph, layout = torch.rand(60, 60).relu().to_sparse(), "{layout}"
kept = getattr(graph, "to_" + "sparse_" + layout)() if {before} else None
model, x = torch.nn.Linear(60, 8), torch.rand(60, 60)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
while time.monotonic() - began < {seconds}:
    now = kept if kept is not None else getattr(graph, "to_" + "sparse_" + layout)()
    loss = ((now if layout != "coo" else graph) @ model(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("to the end")
"""


@pytest.mark.parametrize(
    ("layout", "before", "opens"), [("csr", False, False), ("csr", True, False), ("coo", True, True)]
)
def test_a_program_with_compressed_sparse_tensors_lives_and_its_dataflow_is_not_seen(
    layout: str, before: bool, opens: bool, tmp_path: Path
) -> None:
    if layout == "coo":
        text = PROGRAM.replace('getattr(graph, "to_" + "sparse_" + layout)() if {before} else None', "graph")
    else:
        text = PROGRAM
    (tmp_path / "train.py").write_text(text.format(layout=layout, before=before, seconds=8))
    command = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", "out", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "to the end" in done.stdout, done.stderr
    assert bool(list((tmp_path / "out").glob("*.flow.json"))) == opens
