"""Two ranks under torchrun: each as in the plain run, each with its own recording."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gobrrr.capture.process import launch
from gobrrr.recording.run_folder.run import load_run
from tests.transparency.pairs import PROGRAMS, differences, quick

RANKS = ("0", "1")
_OF_THIS_RUN = re.compile(r"(TORCHELASTIC_RUN_ID|MASTER_PORT|TORCHELASTIC_ERROR_FILE|MASTER_ADDR)")


def torchrun(folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run two ranks in `folder`; gives the fingerprint of each."""
    folder.mkdir()
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(PROGRAMS / "ranks.py")]
    done = subprocess.run(
        [sys.executable, *command, str(folder / "seen.json")],
        cwd=folder, env={**env, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return {rank: _settled(json.loads((folder / f"seen.json.{rank}").read_text()), folder) for rank in RANKS}


def _settled(seen: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Without what torchrun names anew in every run."""
    for process in (seen["process"], seen["after"]["process"]):
        process["environ"] = {k: v for k, v in process["environ"].items() if not _OF_THIS_RUN.match(k)}
        process["files"] = None  # the rendezvous keeps some
    text = json.dumps(seen).replace(str(folder), "FOLDER")
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_two_ranks_are_those_of_the_plain_run(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    recording.mkdir()
    plain = torchrun(tmp_path / "plain", dict(os.environ))
    watched = torchrun(tmp_path / "watched", launch.environment(quick(recording)))
    assert plain["0"]["num_losses"] > 100
    for rank in RANKS:
        assert differences(plain[rank], watched[rank]) == []
    recordings = load_run(recording)
    assert [(r.start.rank, r.start.world_size, r.ended) for r in recordings] == [(0, 2, "exit"), (1, 2, "exit")]
    assert len({r.start.pid for r in recordings}) == 2
    for r in recordings:
        assert {window.kind for window in r.windows if window.complete} >= {"profile", "sample", "count"}
