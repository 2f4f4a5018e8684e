"""However watching ends, nothing of it is left in the process, and the program's results are the plain ones.

All in one process: a small training is run plain once, then under watch with something going wrong in every part of
gobrrr.capture in turn.
"""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from gobrrr.capture.windows.profiling import _CHATTER
from gobrrr.recording.run_folder.run import load_run
from tests.transparency.pairs import differences
from tests.transparency.training import MODULES, break_, functions_of, notes, surroundings, train, watched


@pytest.mark.usefixtures("hurried")
def test_a_watched_training_is_the_plain_one_and_nothing_stays(plain: dict[str, Any], tmp_path: Path) -> None:
    before = surroundings()
    with watched(tmp_path):
        assert differences(plain, train()) == []
    assert differences(before, surroundings()) == []
    (recording,) = load_run(tmp_path)
    assert [w.kind for w in recording.windows[:3]] == ["profile", "count", "flow"]
    assert recording.ended == "block ended"


class Injected(Exception):
    """Raised inside gobrrr by these tests."""


OUTSIDE = {
    "bootstrap", "config", "interpreter", "launch", "relay", "script", "watcher", "sitecustomize", "__init__",
}  # fmt: skip
"""Modules that work before the program's first line, or in another process; the rest is called from hooks."""
GUARDS = {
    "hooks.Hooks._guarded", "hooks._is",
    "hooks.Hooks._timed", "lookup.Lookup.__get__", "lookup.EngineLookup.__get__",
    "transform_guard.is_the_programs", "transform_guard._code",
    "session.Session.begin", "session.Session._failed", "session.Session.mark", "records.complaint",
    "line_log.LineLog._global", "line_log.LineLog._fail", "line_log.LineLog._user_local",
    "line_log.LineLog._module_local",
    "line_log.LineLog._backward_local", "sampler.Sampler._run", "workers.WorkerSampling._follow",
    "unlisted_thread.Unlisted._run", "window._Bell.__bool__", "window.Overdue._look",
}  # fmt: skip
"""What the interpreter or torch calls: each only catches what goes wrong in what it calls, and says so."""
TAKES_OFF = {
    "hooks.Hooks.remove", "hooks.Hooks._unregister", "hooks.Hooks._step_over", "lookup.ModuleCall.remove",
    "lookup.Patches.take_out",
    "vitals.Collections.remove", "session.Session.end", "session.Session._abandon_window", "session.Session.forked",
    "window.Window.release", "profiling.ProfileWindow.off", "counting.CountWindow.off", "sampling.SampleWindow.off",
    "line_log.LineLog.stop", "transform_guard.forget", "sampler.Sampler.stop", "profiling.Profiled.abandon",
    "profiling.Profiled._disable", "workers.WorkerSampling.close", "journal.JournalWriter.close",
    "recorder.Recorder.started",
    "descriptors.Held.close", "descriptors.Held.fd", "descriptors.Held.__init__",
    "lookup.KeptCalls.on", "lookup.KeptCalls.remove", "lookup.KeptCalls._put_back", "lookup.EngineLookup.remove",
    "recorder._forked",
    "unlisted_thread.Unlisted.alive", "unlisted_thread.Unlisted.stop", "window.Overdue.stop",
    "profiling.let_through", "profiling._heirs", "sampler.ThreadCalls.close", "dataflow.FlowWindow.off",
    "dataflow.FlowWindow._let_go",
}  # fmt: skip
"""What ends watching: were it broken, something would stay."""
LATER = {
    "recorder.Recorder.note": (30,), "recorder.Recorder.update_end": (9,), "recorder.Recorder.forward": (3,),
    "recorder.Recorder.batch": (2,), "recorder.Recorder._boundary": (5, 12), "recorder.Registry.number": (4,),
    "vitals.Collections.pending": (1,), "loops.Loops.update": (3,), "loops.Loops.forward": (7,),
    "session.Session._boundary": (8,), "session.Session._plain": (3,), "session.Session._open": (1, 2),
    "session.Session._in_window": (1,), "session.Session._close": (1, 2), "window.Window.open": (2,),
    "window.Window.close": (1, 2), "profiling.without_chatter": (1,), "line_log.LineLog._kind": (50,),
    "line_log.LineLog._number": (20,), "line_log.LineLog._enter": (30,), "line_log.LineLog._enter_module": (5,),
    "line_log.LineLog._module_number": (3,), "line_log.LineLog._line": (40,), "counted.Counted.denormal": (9,),
    "saved_for_backward.Saved._keep": (3,), "saved_for_backward.Places._event": (9,),
    "journal.JournalWriter.json": (2,),
    "journal.JournalWriter.events": (2,), "journal.JournalWriter._frame": (1,), "window_plan.is_steady": (3,),
    "hooks.Hooks._next_begin": (3,), "hooks.Hooks._next_end": (3,), "hooks.Hooks._forward": (3,),
    "hooks.Hooks._update_begin": (3,), "hooks.Hooks._update_end": (3,), "hooks.Hooks._loader_number": (3,),
}  # fmt: skip
"""Calls after which it goes wrong too, beside the first: in the middle of a window, say."""


def _faults() -> list[tuple[str, int]]:
    """Every function of gobrrr.capture: one that is added is tried without being named here."""
    modules = sorted(MODULES.keys() - OUTSIDE)
    named = [name for module in modules for name in functions_of(module) if name not in GUARDS | TAKES_OFF]
    return [(name, after) for name in named for after in (0, *LATER.get(name, ()))]


def _parametrized() -> list[Any]:
    """In the fast suite: all of LATER, of the others a module's first and a fourth that its names choose."""
    found, modules = [], set()
    for where, after in _faults():
        module = where.split(".")[0]
        quick = after or module not in modules or zlib.crc32(where.encode()) % 4 == 0
        modules.add(module)
        found.append(pytest.param(where, after, id=f"{where}-{after}", marks=() if quick else pytest.mark.slow))
    return found


def test_the_names_above_are_names_of_functions() -> None:
    modules = {name.split(".")[0] for name in GUARDS | TAKES_OFF | set(LATER)}
    known = {name for module in modules for name in functions_of(module)}
    known.add("profiling.without_chatter")
    assert (GUARDS | TAKES_OFF | set(LATER)) - known == set()


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("where", "after"), _parametrized())
def test_a_failure_inside_is_not_felt(
    where: str, after: int, plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    before = surroundings()
    with monkeypatch.context() as patches:
        calls = break_(patches, where, after, Injected("injected"))
        with watched(tmp_path):
            found = train()
    if after and len(calls) <= after:
        pytest.skip("on a crowded machine a short training may end before")
    assert differences(plain, found) == []
    assert differences(before, surroundings()) == []
    out, err = capfd.readouterr()
    err = _CHATTER.sub(b"", err.encode()).decode()  # should the part that holds it back be what fails
    assert out == ""
    assert err == ""
    told = "Injected" in notes(tmp_path)
    assert told or not calls or not any(tmp_path.glob("*.journal")) or where.startswith(("journal.", "descriptors."))


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
