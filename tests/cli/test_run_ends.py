"""A program ends as it would alone: exit code, signal, output; and its recording is read as far as it had come."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAMS, Done, Runner, own_part

ENDS = {
    "normally": 0, "exit": 7, "message": 1, "raise": 1, "_exit": 5,
    "abort": -signal.SIGABRT, "SIGTERM": -signal.SIGTERM, "SIGINT": -signal.SIGINT, "SIGKILL": -signal.SIGKILL,
}  # fmt: skip
SLOW = {"normally", "message", "abort", "exit", "SIGKILL"}
"""For exit test_run_fails.py has its own; SIGKILL cuts short as _exit and SIGTERM do."""
CUT_SHORT = {"_exit", "abort", "SIGTERM", "SIGKILL"}


LAST_WORDS = {"message", "raise", "SIGINT"}
"""What else the interpreter says on stderr; in all other ways a run prints what one that ends normally does."""


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way in SLOW)) for way in ENDS])
def test_a_program_ends_as_it_would_alone(
    way: str, printed: Done, plainly: Runner, gobrrr: Runner, tmp_path: Path
) -> None:
    plain = plainly(PROGRAMS / "ends.py", way) if way in LAST_WORDS else printed
    watched = gobrrr("run", "--json", "report.json", PROGRAMS / "ends.py", way)
    assert plain.code == (ENDS[way] if way in LAST_WORDS else 0)
    assert watched.code == ENDS[way]
    assert watched.out == plain.out
    said = own_part(plain, watched)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["step"]["count"] >= 5
    assert "Traceback" not in said
    assert ("cut short" in said) == (way in CUT_SHORT), said


def test_tracebacks_are_those_of_the_plain_run(plainly: Runner, gobrrr: Runner) -> None:
    plain = plainly(PROGRAMS / "errors.py")
    watched = gobrrr("run", PROGRAMS / "errors.py")
    assert plain.text.count("Traceback") >= 12
    assert (watched.code, watched.out) == (plain.code, plain.out)
    said = own_part(plain, watched)
    assert "gobrrr/capture" not in plain.text
    assert "Traceback" not in said


def _started(command: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_signals_sent_to_gobrrr_reach_the_program(env: dict[str, str], tmp_path: Path) -> None:
    child = _started([sys.executable, "-m", "gobrrr", "run", str(PROGRAMS / "waits.py")], env, tmp_path)
    assert child.stdout is not None
    for name in ("SIGUSR1", "SIGINT", "SIGUSR2", "SIGHUP", "SIGTERM"):
        child.send_signal(getattr(signal, name))
        assert child.stdout.readline() == f"got {name}\n"
    out, err = child.communicate(timeout=60)
    assert out == "SIGUSR1 SIGINT SIGUSR2 SIGHUP SIGTERM\n"
    assert child.returncode == 3
    assert "Traceback" not in err


def test_ctrl_c_at_a_terminal_comes_once(env: dict[str, str], tmp_path: Path) -> None:
    """The terminal sends it to both; gobrrr must not pass on what the program has got already."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "gobrrr", "run", str(PROGRAMS / "waits.py")], env)
    seen = ""
    try:
        seen = _read_until(terminal, "ready", seen)
        os.write(terminal, b"\x03")
        seen = _read_until(terminal, "got SIGINT", seen)
        time.sleep(0.3)  # a second one would come now
        os.kill(pid, signal.SIGTERM)
        seen = _read_until(terminal, "SIGINT SIGTERM", seen)
        with contextlib.suppress(OSError):  # the last one at the terminal has left
            _read_until(terminal, "for ever", seen)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(terminal)
    assert code == 3
    assert seen.count("got SIGINT") == 1


def _read_until(terminal: int, text: str, seen: str) -> str:
    deadline = time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < deadline, seen
        seen += os.read(terminal, 4096).decode()
    return seen
