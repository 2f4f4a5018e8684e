"""`gobrrr top` beside a program that really runs: it follows it to its end, and the program notices nothing."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Runner

PROGRAM = """
import os, sys, time, torch
from torch import nn
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while not os.path.exists("enough"):
    time.sleep(0.001)  # the data
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
print("made its steps")
sys.exit(3)
"""
PATIENCE_S = 100


@pytest.fixture
def program(gobrrr: Runner, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It makes steps of some milliseconds until there is a file called enough."""
    (tmp_path / "train\x1b[2Jme.py").write_text(PROGRAM)
    command = [*gobrrr.command, "run", "--no-rehearsal", "train\x1b[2Jme.py", "--token=abc"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=gobrrr.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        yield child
        (tmp_path / "enough").touch()
        child.communicate(timeout=PATIENCE_S)


def snapshot(gobrrr: Runner, *words: object) -> dict[str, Any]:
    done = gobrrr("top", *words, "--json")
    assert done.code == 0, done.text
    found: dict[str, Any] = json.loads(done.out)
    return found


def until(gobrrr: Runner, has: Any) -> dict[str, Any]:
    """Snapshots, until one shows something."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        done = gobrrr("top", "--json")
        if done.code == 0 and has(found := json.loads(done.out)):
            return dict(found)
    raise AssertionError(done)


def test_a_program_is_followed_from_its_first_step_to_its_end(
    program: subprocess.Popen[bytes], gobrrr: Runner, tmp_path: Path
) -> None:
    early = until(gobrrr, lambda found: found["processes"] and found["processes"][0]["late_ns"])
    assert (early["state"], early["program"]) == ("running", "trainme.py '--token=<redacted>'")
    steps = early["processes"][0]["steps"]
    later = until(gobrrr, lambda found: found["processes"][0]["steps"] > steps + 20)["processes"][0]
    assert later["ran_ns"] > early["processes"][0]["ran_ns"] and later["rss_bytes"] > 1 << 20
    parts = {part["name"]: part["ns"] for part in later["parts"]}
    assert parts["forward"] > 0 and parts["optimizer"] > 0 and parts["data wait"] is None, "it has no loader"
    text = gobrrr("top").out.decode()
    assert "running for" in text and "trainme.py" in text and "\x1b" not in text
    (tmp_path / "enough").touch()
    out, _ = program.communicate(timeout=PATIENCE_S)
    assert (out, program.returncode) == (b"made its steps\n", 3)
    (folder,) = (tmp_path / ".gobrrr").glob("*-*")
    last = snapshot(gobrrr, folder)
    assert (last["state"], last["next"]) == ("ended", f"gobrrr report {folder}")
    report = json.loads((folder / "report.json").read_bytes())
    assert last["processes"][0]["steps"] == report["step"]["count"], "the report has counted the same steps"
