"""Ranks in one folder: who is one, and what the others' work is for each of them."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from gobrrr.capture.session.journal import JournalWriter
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.run_folder.run import Recording, load_run

S = 10**9


def write(folder: Path, name: str, cpu: float, **start: Any) -> None:
    """A process that used `cpu` cores for 10 s, on cores of which 1.9 were busy."""
    journal = JournalWriter(folder / f"{name}.journal", lambda error: None)
    journal.json({"type": "start", "clock": [S * 100, 0], "pid": 1, **start})
    rows = [
        row for t in range(11) for row in ((t * S, ev.CPU, 0, int(t * S * cpu)), (t * S, ev.BUSY, 0, int(1.9 * t * S)))
    ]
    journal.events(array("q", [value for row in rows for value in row]))
    journal.close()


def busy(recording: Recording) -> float:
    """Cores that are told to be busy, but for those of other ranks."""
    rows = recording.events[recording.events[:, 1] == ev.BUSY]
    return float((rows[-1, 3] - rows[0, 3]) / (rows[-1, 0] - rows[0, 0]))


def test_what_other_ranks_of_the_machine_take_is_no_strangers(tmp_path: Path) -> None:
    write(tmp_path, "rank0", 0.9, rank=0, world_size=2)
    write(tmp_path, "rank1", 0.8, rank=1, world_size=2)
    first, second = load_run(tmp_path)
    assert abs(busy(first) - 1.1) < 0.01 and abs(busy(second) - 1.0) < 0.01


def test_ranks_of_another_machine_take_nothing_here(tmp_path: Path) -> None:
    write(tmp_path, "rank0", 0.9, rank=0, world_size=2)
    write(tmp_path, "rank1", 0.8, rank=1, world_size=2, clock=[S * 5000, 0])
    assert all(abs(busy(recording) - 1.9) < 0.01 for recording in load_run(tmp_path))


def test_spawned_helpers_are_no_ranks_and_spawned_ranks_are(tmp_path: Path) -> None:
    write(tmp_path, "rank0", 0.5)
    write(tmp_path, "rank0-7", 0.5, spawned=True)
    assert [recording.start.spawned for recording in load_run(tmp_path)] == [False]
    write(tmp_path, "rank0-8", 0.5, spawned=True, rank=0, world_size=2)
    assert len(load_run(tmp_path)) == 2


def test_the_rank_that_a_process_tells_later_counts(tmp_path: Path) -> None:
    write(tmp_path, "rank0-9", 0.5)
    journal = JournalWriter(tmp_path / "rank0-10.journal", lambda error: None)
    journal.json({"type": "start", "clock": [S * 100, 0], "pid": 2})
    journal.json({"type": "facts", "moment": "steady", "ranks": {"rank": 1, "world_size": 2}})
    journal.close()
    assert [recording.start.rank for recording in load_run(tmp_path)] == [None, 1]
