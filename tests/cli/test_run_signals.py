"""Signals sent to gobrrr are the program's; both end and stop as one process would, and no end of ours leaves it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import PROGRAMS, Runner

RELAYED = PROGRAMS / "relayed.py"
KEPT = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGXFSZ"}
"""Two that nobody catches, news of our own child, faults of our own, and two that Python ignores from its start."""
PASSED_ON = sorted(n for n in signal.valid_signals() if getattr(n, "name", "") not in KEPT)
LETHAL = ("SIGXCPU", "SIGALRM", "SIGUSR1", "SIGTERM", "SIGVTALRM", "SIGIO", "SIGABRT", "SIGRTMIN", "SIGQUIT")


@pytest.fixture
def started(gobrrr: Runner, tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], psutil.Process]]]:
    """Starts gobrrr and gives it and the program, which has said that it is ready; ends both after the test."""
    alive: list[psutil.Popen | psutil.Process] = []

    def start(*words: object) -> tuple[subprocess.Popen[str], psutil.Process]:
        run = subprocess.Popen([*gobrrr.command, "run", *map(str, words)], env=gobrrr.env, cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        alive.append(psutil.Process(run.pid))
        assert run.stdout is not None
        alive.append(psutil.Process(int(run.stdout.readline())))
        return run, alive[-1]

    yield start
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()


def until(found: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; one whose new parent collects nobody counts."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def test_every_signal_that_can_be_caught_is_passed_on(started) -> None:  # type: ignore[no-untyped-def]
    run, _ = started(RELAYED)
    for number in [n for n in PASSED_ON if n != signal.SIGTERM] + [signal.SIGTERM]:
        run.send_signal(number)
        assert select.select([run.stdout], [], [], 60)[0], f"{number!r} never came"
        assert run.stdout.readline().strip() == (getattr(number, "name", number) if number < 34 else str(number))
    assert run.wait(60) == 3


@pytest.mark.parametrize("name", LETHAL)
def test_a_signal_ends_both_alike(name: str, started) -> None:  # type: ignore[no-untyped-def]
    run, program = started(RELAYED, "plain")
    run.send_signal(getattr(signal, name))
    assert run.wait(60) == -getattr(signal, name)
    assert gone(program)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
@pytest.mark.parametrize("words", [[RELAYED], ["--", "sh", "-c", "echo $$; while :; do sleep 1; done"]])
def test_an_end_of_ours_takes_the_program_along(name: str, words: list[object], started) -> None:  # type: ignore[no-untyped-def]
    run, program = started(*words)
    run.send_signal(getattr(signal, name))
    assert run.wait(60) == -getattr(signal, name)
    until(lambda: gone(program))


def test_what_the_program_leaves_behind_outlives_us_both(started, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "daemon.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print(child.pid, flush=True)\ntime.sleep(60)\n"
    )
    run, left = started("daemon.py")
    run.kill()
    run.wait(60)
    time.sleep(0.2)
    assert not gone(left)


@pytest.mark.parametrize("name", ["SIGTSTP", "SIGTTIN"])
def test_a_stop_stops_both_and_a_continuation_continues_both(name: str, gobrrr: Runner, tmp_path: Path) -> None:
    """Below a shell that runs jobs: in a group that nobody looks after the kernel stops nothing."""
    jobs = ["bash", "-c", 'set -m; "$@" & echo "$!"; read; wait "$!"; echo "ended $?"', "bash"]
    shell = subprocess.Popen([*jobs, *gobrrr.command, "run", str(RELAYED), "plain"], env=gobrrr.env, cwd=tmp_path,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert shell.stdout is not None
    both = [psutil.Process(int(shell.stdout.readline())) for _ in range(2)]
    try:
        os.kill(both[0].pid, getattr(signal, name))
        until(lambda: [each.status() for each in both] == [psutil.STATUS_STOPPED] * 2)
        os.kill(both[0].pid, signal.SIGCONT)
        until(lambda: psutil.STATUS_STOPPED not in [each.status() for each in both])
        os.kill(both[0].pid, signal.SIGUSR1)
        until(lambda: all(gone(each) for each in both))
        assert shell.communicate("\n", timeout=60)[0] == f"ended {128 + signal.SIGUSR1}\n"
    finally:
        for each in (shell, *both):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                each.kill()


def test_what_is_ignored_here_is_ignored_there(gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text("import signal; print([signal.getsignal(n) for n in (1, 2, 10)])")
    line = f"trap '' HUP USR1; {sys.executable} asks.py; {' '.join(gobrrr.command)} run asks.py"
    done = subprocess.run(["sh", "-c", line], env=gobrrr.env, cwd=tmp_path, capture_output=True, timeout=60)
    plain, watched = done.stdout.splitlines()
    assert watched == plain
    assert plain.count(b"SIG_IGN") == 2
