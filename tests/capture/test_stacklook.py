"""A look at another thread's stack: what it sees, and that the program lives on."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from gobrrr.capture.windows import sampler
from gobrrr.capture.windows.sampler import Place, look

PROGRAM = """
import gc, threading, time
from gobrrr.capture.windows.sampler import Sampler

class Node:
    def __init__(self):
        self.me = self  # only a collection ends it

    def __del__(self):
        time.sleep(0)  # gives the interpreter's lock away

def leaf():
    nodes = [Node() for _ in range(3)]
    time.sleep(0)
    return len(nodes)

def deep(n):
    return leaf() if n == 0 else deep(n - 1)

gc.set_threshold(5)
sampler = Sampler(threading.main_thread().ident, 1e-4, lambda file: True)
sampler.start()
until = time.monotonic() + 8
while len(sampler.t) < 1000 and time.monotonic() < until:
    for n in range(30):
        deep(n)
sampler.stop()
print(sampler.error or "fine", gc.isenabled(), gc.get_threshold()[0])
gc.disable()  # else torch's modules are torn down with a collection at every fifth object
"""


def places_of(thread: int, most: int) -> list[Place]:
    """Without values."""
    return look(thread, most, frozenset(), "")[0]


def test_finalizers_in_a_look_do_not_crash_the_program() -> None:
    """Python before 3.12 collects while a frame object is made: this program died in each of six runs."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.split()) == (0, ["fine", "True", "5"]), ended.stderr


def walked(frame: FrameType | None) -> Iterator[FrameType]:
    """Outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


@pytest.fixture
def parked() -> Iterator[threading.Thread]:
    """A thread that stands in inner(), called by outer()."""
    there, leave = threading.Event(), threading.Event()

    def inner() -> None:
        mine = "a value"
        there.set()
        assert mine
        leave.wait()

    def outer() -> None:
        inner()

    thread = threading.Thread(target=outer)
    thread.start()
    there.wait()
    yield thread
    leave.set()
    thread.join()


@pytest.mark.parametrize("enabled", [True, False])
def test_it_sees_the_stack_and_leaves_the_collector_as_it_was(parked: threading.Thread, enabled: bool) -> None:
    assert parked.ident is not None
    (gc.enable if enabled else gc.disable)()
    try:
        found = places_of(parked.ident, 100)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    names = [code.co_name for code, _ in found]
    at = names.index("inner")
    assert names[at + 1] == "outer" and at > 0, "what it waits in comes first"
    frames = list(walked(sys._current_frames()[parked.ident]))
    assert [(frame.f_code, frame.f_lineno) for frame in frames] == found
    assert places_of(parked.ident, 2) == found[:2]
    assert look(parked.ident, 100, {frames[at].f_code}, "mine")[1] == ["a value"]
    assert look(parked.ident, 100, {frames[at + 1].f_code}, "mine")[1] == [None]


def test_no_frame_is_held_when_the_lock_can_go(parked: threading.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its locals would be, if its function returned meanwhile: a program counted five references to its optimizer."""
    assert parked.ident is not None
    (frame,) = (each for each in walked(sys._current_frames()[parked.ident]) if each.f_code.co_name == "inner")
    at = [code for code, _ in places_of(parked.ident, 100)].index(frame.f_code)
    held, enable, before = list[int](), gc.enable, sys.getrefcount(frame)
    monkeypatch.setattr(gc, "enable", lambda: (enable(), held.append(sys.getrefcount(frame))))
    for most in (100, at + 1):  # the last one that is looked at, too
        assert look(parked.ident, most, {frame.f_code}, "mine")[1] == ["a value"]
    assert held == [before, before]


def test_nothing_is_collected_from_the_first_frame_to_the_last(
    parked: threading.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled: list[bool] = []
    current, place = sys._current_frames, sampler._place
    monkeypatch.setattr(sys, "_current_frames", lambda: (enabled.append(gc.isenabled()), current())[1])
    monkeypatch.setattr(sampler, "_place", lambda frame: (enabled.append(gc.isenabled()), place(frame))[1])
    assert parked.ident is not None
    found = places_of(parked.ident, 100)
    assert enabled == [False] * (1 + len(found)) and gc.isenabled()


def test_of_a_thread_that_has_ended_there_is_nothing() -> None:
    assert places_of(1, 100) == [] and gc.isenabled()


def test_a_look_that_fails_leaves_the_collector_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.capture.windows.sampler._place", lambda frame: frame.nothing)
    with pytest.raises(AttributeError):
        places_of(threading.get_ident(), 100)
    assert gc.isenabled()
