"""A program that dies of memory ends as it would alone; what it died of is said first, and read from a log alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAMS, Done, Runner, own_part

SCRIPT = PROGRAMS / "out_of_memory.py"
LINES = SCRIPT.read_text(encoding="utf-8").splitlines()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")


def line_of(text: str) -> int:
    """The program's line that begins with a text."""
    return next(number for number, line in enumerate(LINES, 1) if line.strip().startswith(text))


def both(how: str, plainly: Runner, gobrrr: Runner) -> tuple[Done, str]:
    """The watched run, which ends as the plain one, and what gobrrr said behind it."""
    plain, watched = plainly(SCRIPT, how), gobrrr("run", "-o", "run", SCRIPT, how)
    assert (watched.code, watched.out) == (plain.code, plain.out)
    assert plain.code == 1
    numbers = re.compile(rb"allocate \d+ bytes")  # the limit is set by what the process had then
    same = (
        Done(plain.code, plain.out, numbers.sub(b"", plain.err)),
        Done(watched.code, b"", numbers.sub(b"", watched.err)),
    )
    return watched, own_part(*same)


def failure(tmp_path: Path) -> dict[str, object]:
    """What the process left."""
    (file,) = (tmp_path / "run").glob("out-of-memory-*.json")
    found: dict[str, object] = json.loads(file.read_text())
    return found


def test_activations_that_are_too_large_are_told_by_layer(plainly: Runner, gobrrr: Runner, tmp_path: Path) -> None:
    _, said = both("large", plainly, gobrrr)
    assert said.startswith("Out of memory: 64.0 MiB asked")
    assert f"out_of_memory.py:{line_of('h = torch.relu')}" in said or f":{line_of('return x + self.down')}" in said
    assert "layer blocks." in said
    assert "forward" in said
    assert "x 16384x64 float32" in said
    assert "micro-batches of" in said
    assert "defect of gobrrr" not in said
    assert "no step to judge" not in said
    found = failure(tmp_path)
    assert found["training"] is True
    assert found["optimizers"] == ["Adam"]
    (roles,) = found["alive"].values()  # type: ignore[attr-defined]
    sizes = {role["role"]: role["num_bytes"] for role in roles}
    held = {group["name"]: group for role in roles if role["role"] == "activations" for group in role["groups"]}
    assert {"blocks.*.up", "blocks.*.down"} <= set(held)
    assert held["blocks.*.down"]["shape"] == [16384, 1024]
    params = 6 * (64 * 1024 + 1024 + 1024 * 64 + 64) * 4
    assert sizes["parameters"] == sizes["gradients"] == params
    assert params * 2 < sizes["optimizer state"] < params * 2 + 1000  # two moments, and the step of each parameter


def test_tensors_that_are_kept_are_named(plainly: Runner, gobrrr: Runner) -> None:
    _, said = both("keeps", plainly, gobrrr)
    assert f"out_of_memory.py:{line_of('kept.append')}" in said
    assert "kept" in said.partition("to fit")[0]
    assert "kept" in said.partition("to fit")[2]


def test_a_sum_of_results_with_graphs_is_named(plainly: Runner, gobrrr: Runner) -> None:
    _, said = both("sums", plainly, gobrrr)
    assert "total is a sum of" in said
    assert "1. add numbers to total: loss.item()" in said


def test_an_array_that_numpy_refuses_is_told_by_its_line(plainly: Runner, gobrrr: Runner) -> None:
    _, said = both("numpy", plainly, gobrrr)
    assert f"8.00 GiB asked at out_of_memory.py:{line_of('np.ones')}" in said


def test_an_error_that_the_program_catches_is_no_end(plainly: Runner, gobrrr: Runner) -> None:
    watched = gobrrr("run", SCRIPT, "catches")
    assert watched.code == 0
    assert b"went on" in watched.out
    assert "Out of memory" not in watched.text


def test_a_log_alone_is_read(gobrrr: Runner, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 0 bytes is "
        "free. Including non-PyTorch memory, this process has 15.90 GiB memory in use. Of the allocated memory 10.00 "
        "GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.\n"
    )
    told = gobrrr("explain", "--oom", log)
    assert told.code == 0
    assert "fragmented" in told.out.decode()
    document = json.loads(gobrrr("explain", "--oom", log, "--json").out)
    assert document["ways"][0]["name"] == "expandable_segments"
    missing = gobrrr("explain", "--oom", tmp_path / "none.log")
    assert (missing.code, "cannot read" in missing.text) == (2, True)
