"""Looks in the middle of a program that is started as people start it: from a step, and on a signal to gobrrr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.run_folder.run import load_run
from tests.cli.conftest import PROGRAMS, Done, Runner

LENGTHENS = PROGRAMS / "lengthens.py"


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return found


def test_a_look_from_a_step_on_is_held_against_the_first_steps(gobrrr: Runner, tmp_path: Path) -> None:
    done = gobrrr("run", "-o", "run", "--from-step", 900, "--stop-after", 900, LENGTHENS, 100_000, 0)
    assert done.code == 0, done.text
    (recording,) = load_run(tmp_path / "run")
    main = recording.main
    assert main is not None
    assert sum(step.end <= recording.look for step in main.steps) + 1 == 900
    assert len(main.steps) + 1 == 900 + 900
    assert main.resting and all(window.began > recording.look for window in recording.windows)
    found = report(tmp_path)
    assert found["since"]["now_ns"] == pytest.approx(found["step"]["plain_wall_ns"], rel=0.5)
    assert found["since"]["then_ns"] > 0 and "\nsince     step " in done.text
    assert found["tables"] and "no profiled window" not in str(found["missing"])


def test_a_program_that_ends_before_that_step_is_told_so(gobrrr: Runner, tmp_path: Path) -> None:
    done = gobrrr("run", "-o", "run", "--from-step", 5_000, LENGTHENS, 800, 0)
    assert done.out == b"made 800\n" and done.code == 0
    said = " ".join(done.text.split())
    assert "the program made 800 steps, fewer than --from-step 5,000: nothing was looked at closely" in said
    assert "Name an earlier step" in said
    found = report(tmp_path)
    assert found["step"]["count"] == 799 and found["step"]["plain_wall_ns"] > 0 and found["since"] is None


def test_each_signal_to_gobrrr_opens_a_look(gobrrr: Runner, tmp_path: Path) -> None:
    done = gobrrr("run", "-o", "run", "--on-signal", LENGTHENS, 240, 0.035, 20, 130)
    assert done.code == 0 and done.out == b"made 240\n"
    assert done.text.startswith("gobrrr: kill -USR2 ") and " asks for a closer look\n" in done.text
    (recording,) = load_run(tmp_path / "run")
    begun = recording.events[(recording.events[:, 1] == ev.ASIDE) & (recording.events[:, 3] == 1)]
    assert len(begun) == 2 and len(recording.complete("profile")) == 2, done.text
    assert report(tmp_path)["since"]["looked"] is True
    assert "\nsince     the look at step " in done.text


def test_a_signal_that_nobody_hears_ends_nothing(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGUSR1)\ntime.sleep(0.5)\nprint('alive')\n"
    )
    done = gobrrr("run", "--on-signal=USR1", "early.py")
    assert (done.code, done.out) == (0, b"alive\n")
    assert "no process of the program listens for USR1 now" in done.text


@pytest.mark.parametrize(("words", "why"), [
    (["--from-step", "0"], "at least 1"), (["--from-step", "9", "--on-signal"], "not allowed with"),
    (["--on-signal=KILL"], "invalid choice"),
])  # fmt: skip
def test_what_cannot_be_asked_for_is_told_in_a_line(words: list[str], why: str, gobrrr: Runner) -> None:
    done: Done = gobrrr("run", *words, LENGTHENS, 10)
    assert done.code == 2 or done.code == 1
    assert why in done.text and "Traceback" not in done.text and not done.out
