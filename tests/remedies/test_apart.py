"""What is tried in a copy of the process leaves nothing in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

from gobrrr.remedies.mechanism import forked_copy  # noqa: E402


def test_an_answer_comes_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = {"opened": 0}

    def ask() -> list[int | None]:
        state["opened"] += 1
        print("loud", flush=True)
        torch.rand(3)
        (tmp_path / "parent").write_text(str(os.getppid()))
        return [3, None]

    before, fds = torch.get_rng_state(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert forked_copy.apart(ask) == [3, None]
    assert state == {"opened": 0} and capfd.readouterr() == ("", "")
    assert bool((torch.get_rng_state() == before).all()) and len(os.listdir("/proc/self/fd")) == fds  # noqa: PTH208
    assert (tmp_path / "parent").read_text() == str(os.getpid())


def test_a_failure_is_told_by_its_name() -> None:
    with pytest.raises(forked_copy.TriedApart, match="ZeroDivisionError"):
        forked_copy.apart(lambda: 1 // 0)
    with pytest.raises(forked_copy.TriedApart, match="SystemExit"):
        forked_copy.apart(lambda: exit(3))
    with pytest.raises(forked_copy.TriedApart, match="TypeError"):
        forked_copy.apart(object)


@pytest.mark.parametrize("ends", [lambda: time.sleep(60), lambda: os.kill(os.getpid(), 9)])
def test_what_does_not_end_or_dies_is_no_answer(ends: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_copy, "PATIENCE_S", 0.3)
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(forked_copy.TriedApart, match="no answer"):
        forked_copy.apart(ends)  # type: ignore[arg-type]
    assert {child.pid for child in psutil.Process().children()} <= before, "nor is a zombie left"


ALONE = """
import os, signal, sys, time
import torch
from gobrrr.remedies.mechanism import forked_copy

heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))

def ask():
    return signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, [])

if sys.argv[1] == "with another":
    other = os.fork()
    if not other:
        time.sleep(0.5)
        os._exit(0)
    ends = lambda: os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
    own, forked_copy._end = forked_copy._end, lambda child: (own(child), ends())  # one signal for both
blocked = forked_copy.apart(ask)
print(len(heard), blocked, signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="the system cannot say whose signal it was")
@pytest.mark.parametrize(("what", "times"), [("alone", 0), ("with another", 1)])
def test_the_programs_handler_hears_of_its_own_children_only(what: str, times: int) -> None:
    """In a process with one thread: another would take the signal."""
    words = [sys.executable, "-c", ALONE, what]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    assert done.stdout.split() == [str(times), "False", "False"]


def test_products_of_a_pool_of_threads_do_not_hang_in_the_copy() -> None:
    """libgomp's threads are not copied: an op on several of them would wait for ever."""
    x = torch.randn(600, 600)
    x @ x
    assert forked_copy.apart(lambda: float((x @ x).sum())) == pytest.approx(float((x @ x).sum()), rel=1e-3)
