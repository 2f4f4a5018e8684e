"""However watching ends, nothing of it is left in the process, and the program's results are the plain ones.

All in one process: a small training is run plain once, then under watch with something going wrong in every part of
gobrrr.capture in turn.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gobrrr.capture.unseen import _CHATTER
from gobrrr.recording.run import load_run
from tests.transparency.pairs import differences
from tests.transparency.training import break_, notes, surroundings, train, watched


@pytest.mark.usefixtures("hurried")
def test_a_watched_training_is_the_plain_one_and_nothing_stays(plain: dict[str, Any], tmp_path: Path) -> None:
    before = surroundings()
    with watched(tmp_path):
        assert differences(plain, train()) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert [w.kind for w in recording.windows[:3]] == ["profile", "count", "sample"]
    assert recording.ended == "block ended"


class Injected(Exception):
    """Raised inside gobrrr by these tests."""


# (where it goes wrong, after how many calls). The guards themselves are not among them, nor what only takes things off.
FAULTS = [
    ("recorder.Recorder.note", 0), ("recorder.Recorder.note", 30), ("recorder.Recorder.update_end", 0),
    ("recorder.Recorder.update_end", 9), ("recorder.Recorder.forward", 3), ("recorder.Recorder.batch", 2),
    ("recorder.Recorder._boundary", 5), ("recorder.Recorder._boundary", 12), ("recorder.Recorder.flush", 0),
    ("recorder.Recorder._vitals", 0), ("recorder.vitals", 0), ("recorder.Registry.number", 4),
    ("recorder.Registry.alive", 0), ("collector.Collections.pending", 1), ("collector.Collections.install", 0),
    ("loops.Loops.update", 3), ("loops.Loops.forward", 7), ("loops.Loops.batch", 5),
    ("session.Session._boundary", 8), ("session.Session._step", 8), ("session.Session._plain", 3),
    ("session.Session._may_open", 0), ("session.Session._open", 0), ("session.Session._open", 1),
    ("session.Session._open", 2), ("session.Session._in_window", 0), ("session.Session._in_window", 1),
    ("session.Session._close", 0), ("session.Session._close", 1), ("session.Session._close", 2),
    ("session.settling", 0), ("session.Session._write_facts", 0), ("session.Session._start", 0),
    ("session.Session._open_journal", 0), ("session.Session.user_sources", 0), ("session.Session.growth", 0),
    ("session.held_graphs", 0), ("session.user_line", 0),
    ("window.Window.open", 0), ("window.Window.open", 2), ("window.Window.close", 0), ("window.Window.close", 1),
    ("window.Window.close", 2), ("window.Window.exhausted", 0), ("window.Window._write", 0),
    ("window.Window._open_profile", 0), ("window.Window._close_profile", 0), ("window.Window._open_sample", 0),
    ("window.Window._close_sample", 0), ("window.Window._open_count", 0), ("window.Window._close_count", 0),
    ("window.Window._hook", 0), ("window.vitals", 0),
    ("profiled.Profiled.start", 0), ("profiled.Profiled.stop", 0), ("profiled.without_chatter", 0),
    ("profiled.without_chatter", 1),
    ("linelog.LineLog.start", 0), ("linelog.LineLog._enter_frames", 0), ("linelog.LineLog._kind", 50),
    ("linelog.LineLog._number", 20), ("linelog.LineLog._enter", 30), ("linelog.LineLog._enter_module", 5),
    ("linelog.LineLog._module_number", 3), ("linelog.LineLog.as_json", 0),
    ("sampler.Sampler.start", 0), ("sampler.Sampler._sample", 0), ("sampler.Sampler.as_json", 0),
    ("counted.Counted._count_saved", 0), ("counted.Counted._root", 0), ("counted.Counted.denormal", 0),
    ("counted.Counted.denormal", 9), ("counted.user_line", 0), ("counted.describe", 0),
    ("facts.settings", 0), ("facts.modules", 0), ("facts.optimizers", 0), ("facts.loaders", 0), ("facts.memory", 0),
    ("facts.compiled", 0), ("facts.orphans", 0), ("facts._flushes_denormals", 0),
    ("loaderfacts.loader_facts", 0), ("loaderfacts._in_memory", 0),
    ("journal.JournalWriter.__init__", 0), ("journal.JournalWriter.json", 0), ("journal.JournalWriter.json", 2),
    ("journal.JournalWriter.events", 0), ("journal.JournalWriter.events", 2), ("journal.JournalWriter._frame", 1),
    ("overhead.costs", 0), ("plan.is_steady", 3), ("plan.sample_steps", 0), ("workers.WorkerSampling.switch", 0),
    ("hooks.Hooks._optimizers", 0), ("hooks.Hooks._annotations", 0), ("hooks.Hooks._modules", 0),
    ("hooks.Hooks._loaders", 0), ("hooks.Hooks._profilers", 0), ("hooks.Hooks._next_begin", 3),
    ("hooks.Hooks._next_end", 3), ("hooks.Hooks._forward", 3), ("hooks.Hooks._update_begin", 3),
    ("hooks.Hooks._update_end", 3), ("hooks.Hooks._loader_number", 3), ("hooks.Hooks.cost", 0),
    ("session.Session.__init__", 0), ("session.hide_own_code", 0), ("source.call_line", 0),
]  # fmt: skip


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("where", "after"), FAULTS, ids=[f"{where}-{after}" for where, after in FAULTS])
def test_a_failure_inside_is_not_felt(
    where: str, after: int, plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    before = surroundings()
    for attempt in range(3):  # on a crowded machine a short training may end before its windows have opened
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with monkeypatch.context() as patches:
            calls = break_(patches, where, after, Injected("injected"))
            with watched(folder):
                found = train()
        if len(calls) > after:
            break
    assert len(calls) > after, "never got there: the test shows nothing"
    assert differences(plain, found) == []
    assert differences(before, surroundings()) == []
    out, err = capfd.readouterr()
    err = _CHATTER.sub(b"", err.encode()).decode()  # should the part that holds it back be what fails
    assert out == ""
    assert err == ""
    told = "Injected" in notes(folder) or any("Injected" in note.read_text() for note in folder.glob("seen-*"))
    assert told or not any(folder.glob("*.journal")) or "journal" in where


@pytest.mark.usefixtures("hurried")
def test_a_full_disk_is_not_felt(plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = surroundings()
    real, written = os.write, []

    def write(fd: int, data: Any) -> int:
        written.append(len(data))
        if len(written) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patches:
        patches.setattr(os, "write", write)
        with watched(tmp_path):
            found = train()
    assert differences(plain, found) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert any("No space left" in text for text in recording.missing)
