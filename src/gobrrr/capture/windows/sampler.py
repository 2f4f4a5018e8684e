"""A light sampler: a thread that reads another thread's Python stack every few milliseconds, in unprofiled steps.

It is unbiased where the profiler is not: it costs the same whatever runs. Each sample carries the time since the last
one and the CPU time that the watched thread spent in it, so that waiting can be told from working, and what of the
system holds it, so that waiting can be told from writing.

Python gives the interpreter's lock away after 5 ms, and starts to count anew at each op that drops it for a moment: a
loop in pure Python would be seen only at its tensor ops. While a sampler runs, the lock is given away after SWITCH.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from gobrrr.capture.process.unlisted_thread import Unlisted
from gobrrr.capture.windows.sample_index import NAME, Fetching
from gobrrr.capture.windows.thread_stack import Place, look
from gobrrr.capture.windows.thread_syscalls import ThreadCalls

MAX_DEPTH = 200  # frames read of a stack; proposed: bounds a sample's cost; depths of real programs would settle it
MAX_LIBRARY_FRAMES = 40  # innermost, kept whoever's they are; proposed: bounds a stack; depths would settle it
SWITCH = 2e-5
"""Seconds, well below what lies between two ops: samples of 170 us, each ending in a torch.tensor, were never seen at
2e-4, and all of their time was the collate function's."""


class Sampler:
    """Samples the stack of `thread` until stopped. `stacks` interns (file, line, function, is_user) tuples."""

    def __init__(self, thread: int, interval: float, is_user: Any) -> None:
        self.thread, self.interval = thread, interval
        self.frames: list[tuple[Any, int]] = []
        self._frame_numbers: dict[tuple[int, int], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.t: list[int] = []
        self.stack: list[int] = []
        self.cpu: list[int] = []
        self.held: list[int] = []
        self.wrote: list[int] = []
        self.index: list[int] = []
        self._fetching = Fetching()
        self.cost_ns = 0
        self.error = ""
        self._is_user = is_user
        self._native = _native(thread)
        self._clock = cpu_clock(self._native)
        self._switch: tuple[float, float] | None = None  # the program's, and ours
        self._calls: ThreadCalls | None = None
        self._runner = Unlisted(self._run)

    def start(self) -> None:
        """Begin to sample. Descriptors come and go in the thread that asks for it: one that appeared between two calls
        of the program would be a number that it finds taken (EBUSY of its dup2), or that it has made its own."""
        self._calls = ThreadCalls(self._native)
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH, before))
        self._switch = (before, sys.getswitchinterval())
        self._runner.start()

    def stop(self) -> None:
        """End; returns when the thread has ended. May be called twice, before start(), and in a forked child."""
        if self._switch is not None:
            before, ours = self._switch
            if sys.getswitchinterval() == ours:  # else the program has set another one meanwhile
                sys.setswitchinterval(before)
            self._switch = None
        self._runner.stop()
        if self._calls is not None:
            self._calls.close()

    def _run(self) -> None:
        try:
            assert self._calls is not None
            self._sample(self._calls)
        except BaseException as error:  # the interpreter would print it among the program's own words
            self.error = repr(error)

    def _sample(self, calls: ThreadCalls) -> None:
        while not self._runner.over(self.interval):
            began = time.thread_time_ns()
            kind = calls.kind()  # lets go of the interpreter for a moment: before the stack is read
            wrote = calls.written()
            places, indices = look(self.thread, MAX_DEPTH, self._fetching.codes, NAME)
            if not places:
                return
            self.t.append(time.perf_counter_ns())
            self.cpu.append(self._worked())
            self.held.append(kind)
            self.wrote.append(wrote)
            self.stack.append(self._intern(places))
            self.index.append(self._fetching.index(indices))
            del indices
            self.cost_ns += time.thread_time_ns() - began

    def _worked(self) -> int:
        """CPU ns of the thread so far, -1 where that is not known or it has just ended."""
        try:
            return time.clock_gettime_ns(self._clock) if self._clock is not None else -1
        except OSError:
            return -1

    def _intern(self, places: Sequence[Place]) -> int:
        """Number of the stack, innermost first: user frames all, library frames up to a bound."""
        found: list[int] = []
        for depth, (code, line) in enumerate(places):
            if depth < MAX_LIBRARY_FRAMES or self._is_user(code.co_filename):
                found.append(self._frame_number(code, line or code.co_firstlineno))
        return self.stacks.setdefault(tuple(found), len(self.stacks))

    def _frame_number(self, code: Any, line: int) -> int:
        number = self._frame_numbers.get((id(code), line))
        if number is None:
            number = self._frame_numbers[(id(code), line)] = len(self.frames)
            self.frames.append((code, line))
        return number

    def as_json(self) -> dict[str, Any]:
        """The samples as plain data: frames (file, function, line, is_user), stacks of frame numbers, and columns."""
        frames = [
            (code.co_filename, getattr(code, "co_qualname", code.co_name), line, self._is_user(code.co_filename))
            for code, line in self.frames
        ]
        return {
            "frames": frames,
            "stacks": [list(stack) for stack in self.stacks],
            "t": self.t,
            "stack": self.stack,
            "cpu": self.cpu,
            "held": self.held,
            "wrote": self.wrote,
            "index": self.index,
            "cost_ns": self.cost_ns,
            "interval": self.interval,
        }


def _native(thread: int) -> int:
    """The system's number of a Python thread; 0, of which nothing is known, where it is gone."""
    if thread == threading.main_thread().ident:
        return os.getpid()
    return next((each.native_id or 0 for each in threading.enumerate() if each.ident == thread), 0)


def cpu_clock(native: int) -> int | None:
    """The clock of a thread's CPU time, by the system's number of it. pthread_getcpuclockid() takes Python's number,
    which is an address, and reads there: of a thread that has ended it crashes the program."""
    if not native or sys.platform != "linux":
        return None
    clock = (~native << 3) | 6  # CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED: linux/posix-timers.h
    try:
        time.clock_gettime_ns(clock)
    except OSError:  # it has ended
        return None
    return clock
