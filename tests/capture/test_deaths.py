"""When processes of a job were over, as the kernel tells it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gobrrr.capture.process.deaths import Deaths
from gobrrr.recording.run_folder.failure_file import deaths


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no handles of processes")
def test_ends_are_noted_in_their_order_and_nothing_of_those_that_live(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(3)]
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    with Deaths(tmp_path):
        (tmp_path / f"seen-{gone.pid}.json").write_text("{}")
        for each in sleepers:
            (tmp_path / f"seen-{each.pid}.json").write_text("{}")
        time.sleep(1.2)  # it looks for new ones twice a second
        for each in (sleepers[1], sleepers[0]):
            each.kill()
            each.wait()
            time.sleep(0.1)
    sleepers[2].kill()
    sleepers[2].wait()
    found = deaths(tmp_path)
    assert sorted(found, key=lambda pid: found[pid]) == [sleepers[1].pid, sleepers[0].pid]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1, "handles are closed"


def test_a_folder_in_which_nobody_looked_tells_nothing(tmp_path: Path) -> None:
    with Deaths(tmp_path):
        pass
    assert deaths(tmp_path) == {} and not list(tmp_path.iterdir())
    (tmp_path / "gone.json").write_text('{"a": 1}')
    assert deaths(tmp_path) == {}
