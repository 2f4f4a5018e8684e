"""What a program starts into a session of its own stops, goes on and ends with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from gobrrr.trial.arm.process_group import Family, adopted

STARTS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
                         start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux has subreapers")


def started() -> tuple[subprocess.Popen[bytes], psutil.Process]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    return process, psutil.Process(int(process.stdout.readline()))


def comes(true: Callable[[], bool]) -> bool:
    """Within a second or so: signals take a moment."""
    import time

    return any(true() or time.sleep(0.01) for _ in range(500))


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_child_in_its_own_session_stops_and_ends_with_its_family() -> None:
    process, child = started()
    family = Family(process.pid)
    assert set(family.members()) == {psutil.Process(process.pid), child}
    family.signal(signal.SIGSTOP)
    assert comes(lambda: child.status() == psutil.STATUS_STOPPED)
    family.signal(signal.SIGCONT)
    assert comes(lambda: child.status() != psutil.STATUS_STOPPED)
    process.communicate(b"\n")  # its parent is gone, and nothing leads to it any more
    assert family.members() == [child]
    family.signal(signal.SIGKILL)
    assert comes(lambda: is_gone(child)) and comes(lambda: family.members() == [])


@LINUX
def test_what_nobody_saw_ends_when_all_is_over() -> None:
    with adopted():
        process, child = started()
        process.communicate(b"\n")
        assert child.is_running() and child.ppid() == psutil.Process().pid
    assert comes(lambda: is_gone(child))
