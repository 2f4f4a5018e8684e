"""A signal reaches the processes that listen for it, and no other; when a look is due."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobrrr.capture.process.config import Config
from gobrrr.capture.process.listening import NAME, Listener, pass_on
from gobrrr.capture.session import later
from gobrrr.recording.model.event_kinds import FORWARDS, UPDATES
from gobrrr.system import processes

USR1 = int(signal.SIGUSR1)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = signal.getsignal(USR1)
    yield
    signal.signal(USR1, before)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What would be sent: no test sends a signal to a number that a file names."""
    kept: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: kept.append((pid, number)))
    return kept


def test_who_listens_is_sent_the_signal_and_nobody_else(tmp_path: Path, sent: list[tuple[int, int]]) -> None:
    Listener(USR1, str(tmp_path)).begin()
    assert pass_on(USR1, tmp_path) == 1
    assert sent == [(os.getpid(), USR1)]
    (tmp_path / NAME.format(os.getpid())).write_text("1")
    assert pass_on(USR1, tmp_path) == 0, "the number was another's, which listened"


@pytest.mark.parametrize("name", ["-1", "0", "-7", "00", "word", "", "1e3", "99999999999"])
def test_no_file_names_a_group_of_processes_or_all(name: str, tmp_path: Path, sent: list[tuple[int, int]]) -> None:
    for began in ("0", "", str(processes.began())):
        (tmp_path / NAME.format(name)).write_text(began)
        assert pass_on(USR1, tmp_path) == 0 and not sent


def test_a_thread_that_may_install_no_handler_says_so(tmp_path: Path) -> None:
    listener = Listener(USR1, str(tmp_path))
    thread = threading.Thread(target=listener.begin)
    thread.start()
    thread.join()
    assert "another thread" in listener.why_not and not list(tmp_path.iterdir())


def test_a_signal_that_comes_late_kills_nobody(tmp_path: Path) -> None:
    signal.signal(USR1, signal.SIG_IGN)
    listener = Listener(USR1, str(tmp_path))
    listener.begin()
    listener.check()
    signal.raise_signal(USR1)
    assert listener.asked and not listener.why_not


@pytest.mark.parametrize(("kind", "made", "optimizer", "due"), [
    (UPDATES, 99, True, False), (UPDATES, 100, True, True), (FORWARDS, 100, True, False), (FORWARDS, 100, False, True),
])  # fmt: skip
def test_the_step_is_one_of_the_training_where_there_is_one(
    kind: int, made: int, optimizer: bool, due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "optimizer_made", lambda: optimizer)
    waiting = later.Later(Config("", from_step=100))
    assert waiting.holds and waiting.due(kind, made) is due
    assert made + waiting.left(made) == 99
    waiting.over()
    assert not later.Later(Config("")).holds
