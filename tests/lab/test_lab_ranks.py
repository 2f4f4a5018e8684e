"""Ranks of an experiment end with the lab, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from pathlib import Path
from gobrrr_lab.nets.ranks import meet

def work(rank, folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(100)

if __name__ == "__main__":
    meet(work, 2, sys.argv[1])
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_killed_lab_leaves_no_rank_behind(tmp_path: Path) -> None:
    script, folder = tmp_path / "lab.py", tmp_path / "ranks"
    script.write_text(PROGRAM)
    folder.mkdir()
    lab = subprocess.Popen([sys.executable, str(script), str(folder)])
    try:
        until = time.monotonic() + 90
        while len(ranks := list(folder.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        lab.send_signal(signal.SIGKILL)
        lab.wait()
    assert len(ranks) == 2
    until = time.monotonic() + 5
    while any(alive(int(rank.name)) for rank in ranks) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(int(rank.name)) for rank in ranks)
