"""What was stored by an earlier gobrrr is still read: recordings, reports, receipts and recipes, kept as they were
written."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.cli.recipe import read as read_recipe
from gobrrr.pipeline.runs import load
from gobrrr.recording.run_folder.run import load_run
from gobrrr.trial.receipt.receipt import read as read_receipt
from tests.snapshots.cases import RUNS
from tests.snapshots.shelf import STORED

pytest.importorskip("torch")


@pytest.mark.parametrize("run", RUNS)
def test_recordings(run: str, shelf: Path) -> None:
    recordings = load_run(shelf / run)
    assert len(recordings) == (2 if run == "ranks" else 1)
    for recording in recordings:
        assert recording.start.torch == "2.13.0+cpu" and len(recording.events) > 100
        assert recording.trace is not None and recording.window("profile") is not None


@pytest.mark.parametrize(("run", "code"), [("starved", "BRR101"), ("answers", "BRR313"), ("ranks", "BRR701")])
def test_reports(run: str, code: str, shelf: Path) -> None:
    report = load(shelf / run / "report.json")
    assert report.step.count > 40 and code in [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("name", "kept"),
    [("kept", ("fused_optimizer", "loader_workers")), ("memory", ("activation_checkpointing",)), ("none_kept", ())],
)
def test_receipts(name: str, kept: tuple[str, ...]) -> None:
    assert read_receipt(STORED / f"receipt_{name}.json").kept == kept


@pytest.mark.parametrize(("name", "options"), [("kept", {"loader_workers": {"workers": 2}}), ("memory", {})])
def test_recipes(name: str, options: dict[str, dict[str, int]]) -> None:
    assert read_recipe(STORED / f"recipe_{name}.toml").options == options
