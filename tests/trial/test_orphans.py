"""What ends with a referee that is killed, and what must not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from gobrrr.trial.arm import orphans
from gobrrr.trial.arm.orphans import Heirs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who began when is read from /proc")


def comes(true: Callable[[], bool]) -> bool:
    """Within some seconds: signals take a moment."""
    return any(true() or time.sleep(0.01) for _ in range(1000))


@pytest.fixture
def heirs() -> Iterator[Heirs]:
    made = Heirs()
    yield made
    made.close()


@pytest.fixture
def sleeper() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that lead a group and are stopped."""
    started = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "100"], start_new_session=True))
        os.killpg(started[-1].pid, signal.SIGSTOP)
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def lives(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def test_what_is_known_ends_with_the_pipe_and_what_was_forgotten_does_not(heirs: Heirs, sleeper) -> None:
    known, stray, forgotten = sleeper(), sleeper(), sleeper()
    heirs.know([forgotten.pid])
    heirs.know([known.pid])
    heirs.know([known.pid, stray.pid])
    heirs.forget(forgotten.pid)
    heirs.close()
    assert comes(lambda: not lives(known) and not lives(stray)) and lives(forgotten)


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Who would have been."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(orphans.os, "killpg", lambda pid, number: found.append(("group", pid)))
    monkeypatch.setattr(orphans.os, "kill", lambda pid, number: found.append(("process", pid)))
    return found


def test_a_number_that_is_anothers_by_now_is_not_signalled(signalled: list[tuple[str, int]]) -> None:
    ours, others = f"{os.getpid()}:{orphans._began(os.getpid())}", f"{os.getppid()}:1"
    orphans.outlive([f"1 {ours} {others}\n"])
    assert signalled == [("group", os.getpid())]
    orphans.outlive([f"1 {others} {ours}\n"])
    assert signalled[1:] == [("process", os.getpid())]


def test_a_line_that_was_cut_off_is_not_followed(signalled: list[tuple[str, int]]) -> None:
    ours = f"{os.getpid()}:{orphans._began(os.getpid())}"
    orphans.outlive([f"1 {ours}\n", f"2 {ours}"])
    assert len(signalled) == 1


def test_a_group_whose_leader_has_ended_ends(sleeper) -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 100 >&- & echo $!"], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    left = psutil.Process(int(leader.communicate()[0]))
    orphans.outlive([f"{leader.pid} {leader.pid}:1\n"])
    assert comes(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE)


def test_the_helper_is_out_of_reach_of_the_terminal_and_small(heirs: Heirs, sleeper) -> None:
    heirs.know([sleeper().pid])
    helper = psutil.Process(heirs._helper.pid)
    assert os.getsid(helper.pid) == helper.pid != os.getsid(0)
    assert comes(lambda: "orphans.py" in " ".join(helper.cmdline()))
    assert helper.memory_info().rss < 32 << 20
    heirs.close()
    assert not helper.is_running()


def test_a_helper_that_was_killed_is_replaced_and_hears_of_all(heirs: Heirs, sleeper) -> None:
    first, second = sleeper(), sleeper()
    heirs.know([first.pid])
    heirs._helper.kill()
    heirs._helper.wait()
    heirs.know([second.pid])
    heirs.close()
    assert comes(lambda: not lives(first) and not lives(second))


def test_a_helper_that_does_not_read_keeps_nobody_waiting(heirs: Heirs, sleeper) -> None:
    heirs.know([sleeper().pid])
    assert not os.get_blocking(heirs._helper.stdin.fileno())
    os.kill(heirs._helper.pid, signal.SIGSTOP)
    for number in range(20_000):  # more than a pipe takes
        heirs._say(f"{number}")
    heirs._helper.kill()


def test_the_helper_imports_next_to_nothing() -> None:
    """It is there as long as a tuning: an import of torch would cost seconds and much memory."""
    code = (
        "import io, runpy, sys\nsys.stdin = io.StringIO()\n"
        f"runpy.run_path({orphans.SELF!r}, run_name='__main__')\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "psutil", "subprocess", "gobrrr"} & set(done.stdout.split())


def test_a_helper_that_hears_of_no_arm_goes_on(heirs: Heirs, sleeper) -> None:
    """One that was ended is started anew, also where the arm that it should forget was the last."""
    gone, known = sleeper(), sleeper()
    heirs.know([gone.pid])
    ended = heirs._helper
    assert ended is not None
    ended.kill()
    ended.wait()
    heirs.forget(gone.pid)
    helper = heirs._helper
    assert helper is not None and helper is not ended
    heirs.know([known.pid])
    heirs.close()
    assert helper.returncode == 0 and comes(lambda: not lives(known)) and lives(gone)
