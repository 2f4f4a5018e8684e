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
graph = torch.rand(60, 60).relu().to_sparse()
{made}
model, x = torch.nn.Linear(60, 8), torch.rand(60, 60)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
while time.monotonic() - began < 8:
    loss = ({used} @ model(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("to the end")
"""


COMPRESS = 'make = getattr(graph, "to_" + "sparse_" + "csr")'
"""In parts, so that not the source alone tells."""


@pytest.mark.parametrize(
    ("made", "used", "opens"),
    [
        pytest.param(COMPRESS, "make()", False, marks=pytest.mark.slow),
        (f"{COMPRESS}; kept = make()", "kept", False),
        ("", "graph", True),
    ],
)
def test_a_program_with_compressed_sparse_tensors_lives_and_its_dataflow_is_not_seen(
    made: str, used: str, opens: bool, tmp_path: Path
) -> None:
    """They are seen where they are made anew in each step, and where one is kept."""
    (tmp_path / "train.py").write_text(PROGRAM.format(made=made, used=used))
    command = [sys.executable, "-m", "gobrrr", "run", "--no-rehearsal", "-o", "out", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "to the end" in done.stdout, done.stderr
    assert bool(list((tmp_path / "out").glob("*.flow.json"))) == opens


@pytest.mark.slow
@pytest.mark.parametrize(("word", "opens"), [("", True), ("to_sparse_csr", False)])
def test_what_python_c_was_given_is_a_source(word: str, opens: bool, tmp_path: Path) -> None:
    program = f"names = '{word}'\n" + PROGRAM.format(made="", used="graph")
    command = [
        sys.executable,
        "-m",
        "gobrrr",
        "run",
        "--no-rehearsal",
        "-o",
        "out",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "to the end" in done.stdout, done.stderr
    assert bool(list((tmp_path / "out").glob("*.flow.json"))) == opens
