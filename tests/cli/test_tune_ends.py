"""How a tuning ends: its clock, its signals, the files of an earlier one, and what it says to type next."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gobrrr.cli import options
from gobrrr.cli.interrupts import Interrupts
from gobrrr.cli.verbs import tune
from gobrrr.errors import GobrrrError
from gobrrr.pipeline import first_run, runs, tuning
from gobrrr.pipeline.first_run import Clock, Seen
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.race.tuning import Journal
from gobrrr.trial.receipt.receipt import Receipt, TrialResult

ENDLESS = "import time; print('ready', flush=True)\nwhile True: time.sleep(1)"


def program(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL)


def test_a_program_without_a_step_is_cut_at_half_of_the_minutes(tmp_path: Path) -> None:
    process = program(ENDLESS)
    assert first_run._ended(process, tmp_path, Clock(time.monotonic(), 0.5)) == Seen(0, True, None)
    assert process.poll() is not None


def test_one_with_a_late_step_has_some_more_and_one_that_ends_is_not_cut(tmp_path: Path) -> None:
    assert first_run._until(None, 100) == 50 and first_run._until(2.0, 100) == 30 and first_run._until(45.0, 100) == 55
    process = program("raise SystemExit(7)")
    assert first_run._ended(process, tmp_path, Clock(time.monotonic(), 600)) == Seen(7, False, None)


@pytest.mark.parametrize(("seen", "why"), [
    (Seen(0, True), "no whole step of it came within 8 s"), (Seen(0, True, 7.0), "the program takes 7 s until"),
])  # fmt: skip
def test_a_slow_start_is_ours_to_tell_and_not_the_programs_failure(
    seen: Seen, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own interrupt leaves a traceback of KeyboardInterrupt, which is nobody's to mend."""

    def watched(command, source, folder: Path, within, clock, base) -> Seen:
        folder.mkdir()
        (folder / "stderr").write_text("Traceback\nKeyboardInterrupt\n")
        (folder / "seen-1.json").write_text('{"executable": "python", "torch": "2.13.0", "failed": null}')
        return seen

    monkeypatch.setattr(first_run, "watched", watched)
    with pytest.raises(GobrrrError) as caught:
        first_run.diagnosed(["python"], tmp_path, tmp_path / "d", sys.stderr, first_run.limits.AT_HOME, (),
                           Clock(time.monotonic() - 8.0, 12.0))  # fmt: skip
    error = caught.value
    assert why in error.message and "67% of --minutes" in error.message and error.exit_code == tune.UNMEASURED
    assert "give --minutes 2 or more" in error.hint and "KeyboardInterrupt" not in str(error)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_in_good_order_once(number: signal.Signals) -> None:
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before, heard = signal.signal(number, usual), threading.Event()  # a job in the background has it ignored
    try:
        with Interrupts() as interrupts:
            interrupts.at_first(heard.set)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
                time.sleep(1)
            os.kill(os.getpid(), number)  # while the first one is obeyed
            assert interrupts.exit_code == 128 + number and heard.wait(10)
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.exit_code == 130
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_recipe_of_an_earlier_tuning_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("old")
    tuning.write_or_put_aside(tmp_path / "recipe.toml", "")
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.toml-1"]
    tuning.write_or_put_aside(tmp_path / "recipe.toml", "new")
    assert (tmp_path / "recipe.toml").read_text() == "new"


def test_folders_of_ours_are_gone_however_it_ends(tmp_path: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        (tuning.own_folder(tmp_path, "arms-", stack) / "x").touch()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_the_next_command_can_be_typed(tmp_path: Path) -> None:
    done, cut = Receipt(kept=("a",)), Receipt(complete=False)
    words = ["--", "python", "-c", "print('a b')"]
    resume = tuning._next_command(tmp_path, cut, words)
    assert resume == f"gobrrr tune --resume {tmp_path} -- python -c 'print('\"'\"'a b'\"'\"')'"
    assert tuning._next_command(tmp_path, cut, ["--", "python", "-c", "a\nb"]) == ""
    assert tuning._next_command(tmp_path, done, words).startswith("gobrrr report ")
    (tmp_path / "recipe.toml").touch()
    assert tuning._next_command(tmp_path, done, ["a b.py"]) == f"gobrrr run --recipe {tmp_path}/recipe.toml 'a b.py'"


@pytest.mark.parametrize("words", [
    ("torchrun", "a.py"), (sys.executable, "-u", "-m", "torch.distributed.run", "a.py"),
    (sys.executable, "-X", "dev", "-mdeepspeed"), ("env", sys.executable, "-m", "torch.distributed.launch"),
])  # fmt: skip
def test_launchers_of_ranks_are_refused_however_they_are_named(words: tuple[str, ...]) -> None:
    with pytest.raises(GobrrrError, match="starts several ranks"):
        options.check_ranks(words)


def test_no_launcher_and_a_world_size_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("abc", "", "1", "-3", "1e9", "\u0662"):
        monkeypatch.setenv("WORLD_SIZE", said)
        options.check_ranks((sys.executable, "-u", "train.py", "-m", "torchrun"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(GobrrrError, match="WORLD_SIZE"):
        options.check_ranks((sys.executable, "train.py"))


def seen(folder: Path, torch: str | None, work: str = "") -> Path:
    (folder / "seen-1.json").write_text(json.dumps({"executable": "python", "torch": torch, "failed": None}))
    if work:
        (folder / "seen-1.work").write_text(work)
    return folder


def test_work_of_children_explains_a_failure_before_we_are_blamed(tmp_path: Path) -> None:
    for code in (0, 3):
        found = runs.why_empty(seen(tmp_path, "2.13.0", "1 10"), code)
        assert "the processes that it started did (10 s" in found.message and "defect of gobrrr" not in found.hint
    alone = runs.why_empty(seen(tmp_path, "2.13.0", "10 1"), 3)
    assert "ended with 3 before it made a step" in alone.message


def test_what_was_cut_off_is_not_told_to_install_torch(tmp_path: Path) -> None:
    late = GobrrrError("too slow", "more minutes", 5)
    assert runs.why_empty(seen(tmp_path, "2.13.0"), 0, late) is late
    other = runs.why_empty(seen(tmp_path, None), 0, late)
    assert "torch was not imported by then" in other.message and "pip" not in str(other) and other.exit_code == 5


def test_a_disk_that_was_full_is_what_kept_the_recording_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "seen-1.json").touch()
    said = runs.why_empty(tmp_path, 7)
    assert "could not be written" in said.message and "-o DIR" in said.hint


def test_an_end_before_the_second_step_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "stderr").write_text("Traceback\nRuntimeError: shapes\n")
    failed = runs._no_whole_step(tmp_path, 1)
    assert "the program ended with 1 before its second step: RuntimeError: shapes" in failed.message
    assert "more epochs" in runs._no_whole_step(tmp_path, 0).hint


@pytest.mark.parametrize(("words", "says"), [
    (("3",), 3.0), (("0",), "more than 0"), (("-1",), "more than 0"), (("nan",), "more than 0"), (("inf",), "than 0"),
    (("x" * 5000,), "is no number"),
])  # fmt: skip
def test_minutes_are_more_than_none(words: tuple[str, ...], says: float | str) -> None:
    from gobrrr.cli.options import more_than_zero

    if isinstance(says, float):
        assert more_than_zero(*words) == says
        return
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        more_than_zero(*words)
    assert says in str(caught.value) and len(str(caught.value)) < 100


def test_trials_that_others_wrote_are_told_of(tmp_path: Path) -> None:
    trial = TrialResult(remedies=("fused_optimizer",), verdict="slower")
    Journal(tmp_path / tuning.JOURNAL, "another program").append(trial)
    said = io.StringIO()
    program = Program(("python", "train.py"), tmp_path, 1e6)
    clock = Clock(time.monotonic(), 60.0)
    found = tuning._raced([], program, tmp_path, tmp_path / "arms-x", tuning.Wishes(), clock, said, lambda _: None)
    assert "1 trials there were not measured here" in said.getvalue() and found.complete and not found.trials


def test_what_is_alive_when_the_time_is_over_is_killed(tmp_path: Path) -> None:
    """By a thread of its own: the tuning may be waiting for a block."""
    killed = threading.Event()

    class Endless:
        kill = staticmethod(killed.set)

    referee = LiveReferee(Program((), tmp_path), tmp_path, until=time.monotonic() + 0.01)
    try:
        assert referee._watch is not None
        referee._watch.join(60)
        assert referee._until == -math.inf and referee.is_over()
        referee._all.append(Endless())  # type: ignore[arg-type]
        referee.stop()
        assert killed.is_set()
    finally:
        referee.close()
