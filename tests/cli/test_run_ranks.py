"""torchrun under gobrrr run: every rank is watched, the first one's report is told whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gobrrr.recording.run_folder.run import load_run
from tests.cli.conftest import PROGRAMS, Runner


@pytest.mark.slow
def test_every_rank_is_recorded_and_told(gobrrr: Runner, tmp_path: Path) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("torchrun is not installed beside this Python")
    words = (torchrun, "--standalone", "--nproc_per_node", "2", PROGRAMS / "ends.py", "normally", "60")
    watched = gobrrr("run", "-o", "run", "--", *words)
    assert watched.code == 0, watched.text
    assert watched.out.count(b"loss") == 24
    assert [r.start.rank for r in load_run(tmp_path / "run")] == [0, 1]
    assert "median of" in watched.text
    assert "rank 1: " in watched.text
    assert len(list((tmp_path / "run").glob("report*.json"))) == 2
