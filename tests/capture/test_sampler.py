"""The sampler on threads that do what is known."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gobrrr.capture.windows.sampler import Sampler
from gobrrr.capture.windows.workers import WorkerSampling

KILOBYTES = bytes(1 << 14)


def in_python(until: float, numbers: int = 1_000_000) -> None:
    """Python alone, for as long as one pass takes; the interpreter's lock is dropped after each for a moment."""
    while time.perf_counter() < until:
        total = 0
        for number in range(numbers):
            total += number
        drops_the_lock()


def drops_the_lock() -> None:
    """Some microseconds of zlib, which lets other threads in."""
    import zlib

    zlib.crc32(KILOBYTES)


def sampled(work: Callable[[float], None], seconds: float = 1.0) -> Sampler:
    sampler = Sampler(threading.get_ident(), 0.002, lambda file: file == __file__)
    sampler.start()
    work(time.perf_counter() + seconds)
    sampler.stop()
    return sampler


def test_python_between_two_drops_of_the_lock_is_seen() -> None:
    """With an interval far longer than a pass every sample would fall where the lock is dropped."""
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(10.0)
        sampler = sampled(in_python)
    finally:
        sys.setswitchinterval(before)
    found = sampler.as_json()
    innermost = [found["frames"][found["stacks"][number][0]][1] for number in found["stack"]]
    assert len(innermost) > 20
    assert innermost.count("in_python") > 0.5 * len(innermost)


@pytest.mark.skipif(sys.platform != "linux", reason="timers are rounded there, and threads not moved")
def test_python_of_microseconds_between_two_drops_of_the_lock_is_seen() -> None:
    """A sampler that is woken 50 us late gets the lock where it is dropped, and nowhere else."""
    found = sampled(partial(in_python, numbers=700)).as_json()  # some 30 us
    innermost = [found["frames"][found["stacks"][number][0]][1] for number in found["stack"]]
    assert len(innermost) > 20
    assert innermost.count("in_python") > 0.3 * len(innermost)


def test_the_interpreters_interval_is_as_before() -> None:
    before = sys.getswitchinterval()
    sampler = sampled(in_python, 0.05)
    assert sys.getswitchinterval() == before
    sampler.stop()
    sys.setswitchinterval(0.001)
    sampler.stop()
    assert abs(sys.getswitchinterval() - 0.001) < 1e-9
    sys.setswitchinterval(before)


def test_a_shorter_interval_of_the_programs_own_is_kept() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        sampler = Sampler(threading.get_ident(), 0.01, lambda file: True)
        sampler.start()
        assert abs(sys.getswitchinterval() - 1e-5) < 1e-9
        sampler.stop()
    finally:
        sys.setswitchinterval(before)


def test_who_waits_for_all_threads_does_not_wait_for_ours(tmp_path: Path) -> None:
    """A program that trains, and then joins every thread but its main one, within the sampled window."""
    before = threading.enumerate()
    sampler, workers = Sampler(threading.get_ident(), 0.001, lambda file: True), WorkerSampling(str(tmp_path), None)
    workers._pid = 0  # as in a worker
    workers._set(1.0, 0.001)
    sampler.start()
    workers.fetched()
    try:
        until = time.monotonic() + 10
        while not sampler.t and time.monotonic() < until:
            time.sleep(0.01)
        assert sampler.t and sampler._runner.alive
        assert threading.enumerate() == before
    finally:
        sampler.stop()
        workers.close()
    assert not sampler._runner.alive


def test_no_descriptor_comes_or_goes_while_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that closed all it did not know, and took each free number by dup2, met one that our thread opened."""
    asked: list[int] = []

    def noted(call: Callable[..., object]) -> Callable[..., object]:
        def noting(*args: object, **kwargs: object) -> object:
            asked.append(threading.get_ident())
            return call(*args, **kwargs)

        return noting

    for name in ("open", "close"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    sampler = sampled(in_python, 0.05)
    assert sampler.t and not sampler.error
    assert len(asked) >= 2 and set(asked) == {threading.get_ident()}


def test_a_thread_that_has_ended_is_sampled_without_a_crash() -> None:
    """pthread_getcpuclockid() on the number of an ended thread reads where nothing is: the program dies by SIGSEGV."""
    for _ in range(30):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        number = thread.ident or 0
        thread.join()
        sampler = Sampler(number, 0.001, lambda file: True)
        assert sampler._clock is None
        sampler.start()
        sampler.stop()
        assert not sampler.error


def test_the_clock_of_a_thread_is_that_threads_own() -> None:
    """As time.thread_time_ns() has it, and not that of the thread that asks."""
    told: list[int] = []
    done, worked = threading.Event(), threading.Event()

    def work() -> None:
        in_python(time.perf_counter() + 0.2)
        told.append(time.thread_time_ns())
        worked.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    worked.wait()
    sampler = Sampler(thread.ident or 0, 0.002, lambda file: True)
    found = sampler._worked()
    done.set()
    thread.join()
    assert found == -1 or told[0] <= found <= told[0] + 50_000_000
    until = time.monotonic() + 10  # the system ends a thread some moments after Python does
    while sampler._worked() != -1 and time.monotonic() < until:
        time.sleep(0.01)
    assert sampler._worked() == -1


def _in_child(body: Callable[[], bool]) -> int:
    """Exit code of a forked child: 0 where `body` is true, 1 where it is not, -14 where it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        code = 1
        try:
            code = 0 if body() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_that_was_forked_in_a_look_does_not_hang() -> None:
    """Of 16 workers that started at once one waited for ever: the sampler held its event's lock when it was forked."""
    sampler = Sampler(threading.get_ident(), 0.001, lambda file: True)
    before = sys.getswitchinterval()
    sampler.start()
    try:
        with sampler._runner._stop._cond:  # as the sampler's own thread has it between two looks

            def stopped() -> bool:
                sampler.stop()
                return sys.getswitchinterval() == before

            assert _in_child(stopped) == 0
    finally:
        sampler.stop()
    assert not sampler._runner.alive


def test_a_forked_child_does_not_end_the_sampling_of_workers(tmp_path: Path) -> None:
    workers = WorkerSampling(str(tmp_path), None)
    workers.switch(True, 0.002)

    def switched() -> bool:
        workers.switch(False, 0.0)
        return True

    assert _in_child(switched) == 0
    assert workers._state() == (1.0, 0.002)
    workers.switch(False, 0.0)
    assert workers._state() == (0.0, 0.0)
