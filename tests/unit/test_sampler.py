"""The sampler on threads that do what is known."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from gobrrr.capture.sampler import Sampler

KILOBYTES = bytes(1 << 14)


def in_python(until: float) -> None:
    """Python alone, for as long as one pass takes; the interpreter's lock is dropped after each for a moment."""
    while time.perf_counter() < until:
        total = 0
        for number in range(1_000_000):
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
