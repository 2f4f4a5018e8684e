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
