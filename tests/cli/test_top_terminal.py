"""`gobrrr top` on a terminal: drawn over in place, and the terminal given back however the view ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.cli.screen import _ENTER, _LEAVE
from gobrrr.recording.model import event_kinds
from gobrrr.system import processes
from tests.report.test_top import written

PATIENCE_S = 60


class Terminal:
    """`gobrrr top` on a terminal of its own."""

    def __init__(self, run: Path, columns: int = 80, rows: int = 24, **env: str) -> None:
        self.leader, self.follower = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.follower)

        def own() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.child = subprocess.Popen(
            [sys.executable, "-m", "gobrrr", "top", str(run)], stdin=self.follower, stdout=self.follower,
            stderr=self.follower, start_new_session=True, preexec_fn=own,
            env={**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", "PYTHONIOENCODING": "utf-8", **env},
        )  # fmt: skip
        self.shown = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def until(self, has: Callable[[str], Any]) -> None:
        """Read what is drawn until it shows something."""
        end = time.monotonic() + PATIENCE_S
        while not has(self.shown):
            assert time.monotonic() < end, self.shown[-2000:]
            if select.select([self.leader], [], [], 0.2)[0]:
                self.shown += os.read(self.leader, 1 << 16).decode()

    def ended(self) -> int:
        """Its exit code, with all that it has drawn read."""
        end = time.monotonic() + PATIENCE_S
        while self.child.poll() is None or select.select([self.leader], [], [], 0)[0]:
            assert time.monotonic() < end, self.shown[-2000:]
            if select.select([self.leader], [], [], 0.2)[0]:
                self.shown += os.read(self.leader, 1 << 16).decode()
        return self.child.returncode

    @property
    def restored(self) -> bool:
        """The other screen left, once and for good, and the keyboard as it was."""
        return self.shown.rfind(_LEAVE) > self.shown.rfind(_ENTER) and termios.tcgetattr(self.follower) == self.before


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of this process, which makes steps."""
    clock = [time.time_ns(), time.perf_counter_ns()]
    start = {"type": "start", "clock": clock, "pid": os.getpid(), "began": processes.began()}
    events = [(clock[1] + (n - 100) * 10**7, event_kinds.BOUNDARY, 0, 1) for n in range(100)]
    return written(tmp_path / "run", start, np.array(events), made_s=time.time())


@pytest.fixture
def terminal(run: Path) -> Iterator[Terminal]:
    found = Terminal(run)
    try:
        found.until(lambda shown: "99 steps" in shown)
        yield found
    finally:
        if found.child.poll() is None:
            found.child.kill()
            found.child.wait()
        os.close(found.leader)
        os.close(found.follower)


def drawn(shown: str) -> bool:
    return "goes on" in shown


def bare(shown: str) -> str:
    """Without what moves, colours and clears."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_q_ends_the_view_and_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.type("q")
    assert terminal.ended() == 0
    assert terminal.restored and terminal.shown.endswith(_LEAVE)


def test_ctrl_c_ends_it_as_it_ends_any_verb(terminal: Terminal) -> None:
    terminal.type("\x03")
    assert terminal.ended() == 130
    assert terminal.restored and "Traceback" not in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(terminal: Terminal, number: int) -> None:
    terminal.child.send_signal(number)
    assert terminal.ended() == 128 + number
    assert terminal.restored and "Traceback" not in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM])
def test_what_kills_other_programs_leaves_a_terminal_behind_it_too(terminal: Terminal, number: int) -> None:
    terminal.child.send_signal(number)
    assert terminal.ended() == -number and terminal.restored


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(terminal: Terminal) -> None:
    terminal.child.send_signal(signal.SIGTSTP)  # a session's leader goes on at once: there is no shell to continue it
    terminal.until(lambda shown: -1 < shown.find(_LEAVE) < shown.rfind(_ENTER))
    terminal.until(lambda shown: "99 steps" in shown[shown.rfind(_ENTER) :])
    terminal.type("q")
    assert terminal.ended() == 0 and terminal.restored


def test_it_grows_with_the_program_and_follows_the_window(terminal: Terminal, run: Path) -> None:
    assert max(map(len, bare(terminal.shown).splitlines())) <= 80
    last = time.perf_counter_ns()
    written(run, np.array([(last + n * 10**7, event_kinds.BOUNDARY, 0, 1) for n in range(11)]), made_s=time.time())
    terminal.until(lambda shown: "110 steps" in shown)
    terminal.resize(40, 10)
    at = len(terminal.shown)
    os.kill(terminal.child.pid, signal.SIGWINCH)
    terminal.until(lambda shown: "goes on" in shown[at:])
    picture = terminal.shown[at:].split("\x1b[H")[1]
    assert picture.count("\r\n") <= 9


def test_the_end_of_the_program_is_said_and_stays_on_the_screen(terminal: Terminal, run: Path) -> None:
    other = {"type": "start", "clock": [0, 0], "pid": 2**22 + 5, "began": 1}
    (run / "rank0.journal").write_bytes(b"")  # as if its program were another, which has ended
    written(run, other, {"type": "end", "reason": "exit"}, made_s=time.time())
    assert terminal.ended() == 0 and terminal.restored
    left = bare(terminal.shown[terminal.shown.rfind(_LEAVE) :])
    assert "ended" in left and "next      gobrrr report" in left


def test_a_folder_that_vanishes_is_said_on_the_screen_that_was_there_before(terminal: Terminal, run: Path) -> None:
    shutil.rmtree(run)
    assert terminal.ended() == 2
    assert terminal.restored
    assert "is gone" in terminal.shown[terminal.shown.rfind(_LEAVE) :]


def test_colours_say_nothing_and_stay_away_when_they_are_not_wanted(run: Path) -> None:
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        found = Terminal(run, **env)
        found.until(drawn)
        found.type("q")
        assert found.ended() == 0
        assert ("\x1b[1;32m" in found.shown) is coloured
        assert "running for" in found.shown


def test_a_terminal_that_cannot_be_drawn_over_gets_one_snapshot(run: Path) -> None:
    found = Terminal(run, TERM="dumb")
    assert found.ended() == 0
    assert "99 steps" in found.shown and "\x1b" not in found.shown


def test_an_ascii_terminal_gets_ascii(run: Path) -> None:
    found = Terminal(run, PYTHONIOENCODING="ascii")
    found.until(drawn)
    found.type("q")
    assert found.ended() == 0 and found.shown.isascii()
