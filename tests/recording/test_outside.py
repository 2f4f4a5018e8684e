"""Who is sampled in a look from outside, how often, and what is left of it when it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gobrrr.errors import TraceError
from gobrrr.recording.live import outside, spied
from gobrrr.recording.live.outside import Watch
from gobrrr.system.process_tree import Reading
from tests.support.py_spy import writing


class Clock:
    """Time that passes while it is slept."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def rates(
    monkeypatch: pytest.MonkeyPatch, pids: Any, threads: int, seconds: float, rate: int | None = None
) -> dict[int, int]:
    """The rate of each process that is sampled, in a look at those which pids() tells."""
    found: dict[int, int] = {}

    class Noted:
        def __init__(self, program: str, pid: int, folder: Path, seconds: float, rate: int) -> None:
            found[pid] = rate

        def over(self) -> bool:
            return seconds > 60

    monkeypatch.setattr(outside, "Spy", Noted)
    monkeypatch.setattr(outside.process_tree, "tree", lambda root, without=0: pids())
    monkeypatch.setattr(outside.process_tree, "facts", lambda pid: {})
    monkeypatch.setattr(outside.process_tree, "reading", lambda pid, now: Reading(now, threads=threads))
    Watch("py-spy", 1, seconds, rate, Path()).until_the_end()
    return found


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("processes", "threads", "seconds", "rate", "expected"),
    [(1, 100, 10, None, 50), (8, 100, 10, None, 25), (1, 100, 10, 300, 300), (100, 1, 10, None, 16)],
)
def test_all_processes_together_are_sampled_so_often(
    processes: int, threads: int, seconds: int, rate: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rates(monkeypatch, lambda: [*range(1, processes + 1)], threads, seconds, rate)
    assert set(found.values()) == {expected} and len(found) == min(processes, outside.MOST)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("rate", [None, 1000])
def test_what_an_hour_of_many_threads_writes_can_be_read(rate: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = rates(monkeypatch, lambda: [1], 21, 3600, rate).values()
    assert 1 <= found and found * 21 * 3600 * 70 < spied.MAX_BYTES
    assert [*rates(monkeypatch, lambda: [1], 5000, 3600, rate).values()] == [1]


def test_one_that_comes_when_the_look_all_but_ends_is_not_sampled(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rates(monkeypatch, lambda: [1, *([2] if clock.now > 2 else []), *([3] if clock.now > 9 else [])], 1, 10)
    assert set(found) == {1, 2}


def test_a_file_that_cannot_be_read_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, real = writing(tmp_path / "py-spy", "loader_main.json"), spied.read
    words = ["sh", "-c", "sleep 600 & echo; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None and child.stdout.readline()

        def read(file: Path) -> Any:
            if file.stem != str(child.pid):
                raise TraceError(f"{file.name}: too large")
            return real(file)

        monkeypatch.setattr(spied, "read", read)
        watch = Watch(str(fake), child.pid, 0.3, None, tmp_path)
        try:
            watch.until_the_end()
            seen = watch.stop()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            watch.close()
    assert [*seen.samples] == [child.pid] and len(seen.readings) == 2
    assert ["too large" in error.message for error in seen.failed] == [True]
