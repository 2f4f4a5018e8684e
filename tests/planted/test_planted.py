"""`gobrrr run` on the planted programs: the illness is among its findings, and the twin is not accused of it.

Which finding comes first, its line and its saving are the bench's business (`make bench`): they want a quiet machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planted_scoring import LOUD, findings, judge_sick
from tests.planted import catalogue
from tests.planted.catalogue import CATALOGUE, HERE, Illness

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"loop_optimizer"}
QUICK_STEPS = 40

EVERY = [
    pytest.param(illness, id=illness.name, marks=() if illness.name in QUICK else pytest.mark.slow)
    for illness in CATALOGUE
]


@pytest.mark.parametrize("illness", CATALOGUE, ids=lambda illness: illness.name)
def test_the_patch_applies_exactly_and_the_twin_compiles(illness: Illness):
    compile(illness.script("healthy").read_text(), "healthy.py", "exec")


@pytest.mark.parametrize(
    "change", [lambda text: f"# above\n{text}", lambda text: text.replace("gc.collect", "collect")]
)
def test_a_patch_that_is_not_of_this_program_is_refused(change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = shutil.copytree(HERE / "collects_garbage", tmp_path / "collects_garbage") / "sick.py"
    program.write_text(change(program.read_text()))
    monkeypatch.setattr(catalogue, "HERE", tmp_path)
    with pytest.raises(ValueError, match="collects_garbage"):
        Illness("collects_garbage", ("BRR306",)).script("healthy")


def diagnose(illness: Illness, who: str, folder: Path) -> dict[str, Any]:
    """The report of `gobrrr run` on one program."""
    out = folder / f"{who}.json"
    options = ["--no-rehearsal", "--json", str(out), "-o", str(folder / who)]
    steps = ["--steps", str(QUICK_STEPS)] if illness.name in QUICK else []
    command = [sys.executable, "-m", "gobrrr", "run", *options, str(illness.script(who)), *steps]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text())


def skip_unless_possible(illness: Illness) -> None:
    """A program whose tools are not here proves nothing."""
    if absent := illness.absent():
        pytest.skip(f"{', '.join(absent)} not here")


@pytest.mark.parametrize("illness", EVERY)
def test_the_illness_is_found_and_placed(illness: Illness, tmp_path: Path):
    skip_unless_possible(illness)
    if illness.conditional:
        pytest.skip(f"an illness only where {illness.conditional}")
    report = diagnose(illness, "sick", tmp_path)
    named = [finding for finding in findings(report) if finding["code"] in illness.codes]
    assert named, [finding["code"] for finding in report["findings"]]
    assert judge_sick({"findings": named}, illness.codes, illness.guilty_lines(), saving_ns=0).placed


@pytest.mark.parametrize("illness", EVERY)
def test_the_twin_is_not_accused_of_it(illness: Illness, tmp_path: Path):
    skip_unless_possible(illness)
    report = diagnose(illness, "healthy", tmp_path)
    accused = {finding["code"] for finding in findings(report) if finding["severity"] in LOUD}
    assert not accused & set(illness.codes)
