"""Light sampler: a thread that reads another thread's Python stack every few milliseconds, in unprofiled steps.

It is unbiased where the profiler is not: it costs the same whatever runs. Each sample carries the time since the last
one and the CPU time that the watched thread spent in it, so that waiting can be told from working, and what of the
system holds it, so that waiting can be told from writing.

Python gives the interpreter's lock away after 5 ms, and starts to count anew at each op that drops it for a moment: a
loop in pure Python would be seen only at its tensor ops. While a sampler runs, the lock is given away after SWITCH.
That holds only where the sampler is woken in time: its timers are not rounded up, and it runs on the watched thread's
core, for an idle one sleeps too deeply. Else two calls of strptime before a torch.tensor, 70 % of a loop, had 1 % of
its samples; so they have 66 %.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain, compress, islice, repeat, takewhile
from operator import attrgetter, methodcaller
from types import CodeType, FrameType
from typing import Any

from gobrrr.capture.process.unlisted_thread import Unlisted
from gobrrr.recording.model.event_kinds import RUNS, UNKNOWN, WAITS, WRITES
from gobrrr.system.descriptors import Held

MAX_DEPTH = 200  # frames read of a stack; proposed: bounds a sample's cost; depths of real programs would settle it
MAX_LIBRARY_FRAMES = 40  # innermost, kept whoever's they are; proposed: bounds a stack; depths would settle it
SWITCH = 1.5e-5
"""Seconds, well below what lies between two ops: samples of 170 us, each ending in a torch.tensor, were never seen at
2e-4, and all of their time was the collate function's. At 1e-5 the two threads take the lock from each other."""
PR_SET_TIMERSLACK = 29  # linux/prctl.h


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
            calls, core = self._calls, -1
            _wake_in_time()
            while calls is not None and not self._runner.over(self.interval):
                began = time.thread_time_ns()
                kind = calls.kind()  # lets go of the interpreter for a moment: before the stack is read
                wrote = calls.written()
                if (now := calls.core()) != core:
                    core = _moved_to(now)
                places, indices = look(self.thread, MAX_DEPTH, self._fetching.codes, VARIABLE)
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
        except BaseException as error:  # the interpreter would print it among the program's own words
            self.error = repr(error)

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
                key = id(code), line or code.co_firstlineno
                if key not in self._frame_numbers:
                    self._frame_numbers[key] = len(self.frames)
                    self.frames.append((code, key[1]))
                found.append(self._frame_numbers[key])
        return self.stacks.setdefault(tuple(found), len(self.stacks))

    def as_json(self) -> dict[str, Any]:
        """The samples as plain data: frames (file, function, line, is_user), stacks of frame numbers, and columns."""
        frames = [
            (code.co_filename, getattr(code, "co_qualname", code.co_name), line, self._is_user(code.co_filename))
            for code, line in self.frames
        ]
        named = ("t", "stack", "cpu", "held", "wrote", "index", "cost_ns", "interval")
        stacks = [list(stack) for stack in self.stacks]
        return {"frames": frames, "stacks": stacks, **{name: getattr(self, name) for name in named}}


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


_call = methodcaller("__call__")
_place = attrgetter("f_code", "f_lineno")
Place = tuple[CodeType, int | None]


def look(thread: int, most: int, codes: Set[CodeType], name: str) -> tuple[list[Place], list[Any]]:
    """Return the code that a thread runs, innermost first, `most` frames at most, with the line that each was at;
    nothing where it has ended. Beside it the local variable of a name in those frames that run one of `codes`, None
    where it has none.

    To follow `f_back` makes frame objects, and to make one may set off a garbage collection (until Python 3.12).
    Finalizers run then, and while they do the lock may be given away: the other thread returns from the very frame that
    an object is being made for, which from then on points into memory that is something else's. So collections are off
    during the look, and nothing sees it: from the first call to the last all is C, between which the lock is not given
    away. Nor is a frame held when it is: one whose function has returned would keep all of its locals, and a program
    that counts references to its objects would find ours among them.
    """
    enabled: list[bool] = []
    frames: list[FrameType] = []
    places: list[Place] = []
    values: list[Any] = []
    wanted = set(map(id, codes))  # a code object is hashed by all that is in it
    those = compress(frames, map(wanted.__contains__, map(id, map(attrgetter("f_code"), frames))))
    innermost: Iterator[Any] = map(methodcaller("get", thread), map(_call, (sys._current_frames,)))
    steps: Iterator[object] = chain(
        map(enabled.append, map(_call, (gc.isenabled,))),
        map(_call, (gc.disable,)),
        # Under no name: the accumulation holds the last frame until it goes, which is with the next step.
        map(frames.extend, (islice(takewhile(bool, accumulate(chain(innermost, repeat("f_back")), getattr)), most),)),
        map(places.extend, (map(_place, frames),)),
        map(values.extend, (map(methodcaller("get", name), map(attrgetter("f_locals"), those)),)),
        map(_call, (frames.clear,)),
        map(_call, compress((gc.enable,), enabled)),
    )
    try:
        deque(steps, maxlen=0)
    except BaseException:
        if any(enabled):
            gc.enable()
        raise
    return places, values


WRITING = {
    "x86_64": frozenset(
        (1, 3, 18, 20, 26, 40, 74, 75, 76, 77, 82, 87, 162, 263, 264, 275, 277, 285, 296, 306, 316, 326, 328)
    ),
    "aarch64": frozenset((35, 38, 45, 46, 47, 57, 64, 66, 68, 70, 71, 76, 81, 82, 83, 84, 227, 267, 276, 285, 287)),
}
"""Numbers of write, fsync, their variants, sendfile, splice, truncate, fallocate, rename, unlink and close, which a
file on a network is written at (Linux: syscall_64.tbl, asm-generic/unistd.h)."""


class ThreadCalls:
    """In which call of the system a thread of this process is held, and how much it has written. One that sleeps, one
    that waits for the disk and one that wants a core all leave the processor: the system knows which it is. Where /proc
    does not tell (another system, no right), everything is unknown."""

    def __init__(self, thread: int) -> None:
        self._writing = WRITING.get(platform.machine())
        self._call = _opened(f"/proc/self/task/{thread}/syscall") if self._writing is not None else None
        self._io = _opened(f"/proc/self/task/{thread}/io")
        self._stat = _opened(f"/proc/self/task/{thread}/stat")

    def kind(self) -> int:
        """Return the thread's state: RUNS (or wants a core), WRITES, WAITS (any other call, locks too) or UNKNOWN."""
        word = _read(self._call).split(b" ", 1)[0].strip()
        if not word:
            return UNKNOWN
        if word in (b"running", b"-1"):  # -1: blocked outside any call, in a page fault say
            return RUNS
        number = int(word) if word.isdigit() else -1
        return WRITES if number in (self._writing or ()) else WAITS

    def written(self) -> int:
        """Bytes that it has handed to calls that write, -1 where that is not told."""
        found = _read(self._io).partition(b"\nwchar: ")[2].split(b"\n", 1)[0]
        return int(found) if found.isdigit() else -1

    def core(self) -> int:
        """Number of the core that it runs on or ran on last, -1 where that is not told."""
        fields = _read(self._stat).rpartition(b") ")[2].split()
        return int(fields[36]) if len(fields) > 36 else -1

    def close(self) -> None:
        """Give the files back; may be called twice."""
        for file in (self._call, self._io, self._stat):
            if file is not None:
                file.close()


def _wake_in_time() -> None:
    """Have this thread's timers end when they are due, not up to 50 us later."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _moved_to(core: int) -> int:
    """Let this thread run on one core alone; which it is, -1 where it may not."""
    try:
        os.sched_setaffinity(0, {core})
    except (OSError, AttributeError, ValueError, OverflowError):
        return -1
    return core


def _opened(path: str) -> Held | None:
    try:
        return Held(os.open(path, os.O_RDONLY))
    except OSError:
        return None


def _read(file: Held | None) -> bytes:
    try:
        return os.pread(file.fd, 512, 0) if file is not None else b""
    except OSError:  # closed, by us or by the program, or the thread is gone
        return b""


NO_INDEX = -1
VARIABLE = "idx"
"""Variable of torch's loop over the indices of a batch."""


class Fetching:
    """Tells the index of the sample that a loader is making, NO_INDEX where none is being made or its index is no whole
    number. Looked at are frames of torch's own functions alone: of the program's none would be the same afterwards."""

    def __init__(self) -> None:
        from torch.utils.data._utils.fetch import _MapDatasetFetcher

        self.codes = frozenset(_loops(_MapDatasetFetcher.fetch.__code__))

    def index(self, found: Iterable[Any]) -> int:
        """Return the index among what VARIABLE was in frames of `codes`, innermost first: for a loader that another
        one's samples are made with, the inner one's."""
        whole = (e for e in found if type(e) is int or (type(e).__module__ == "numpy" and hasattr(e, "__index__")))
        return next((index for each in whole if 0 <= (index := int(each)) < 1 << 62), NO_INDEX)


def _loops(code: CodeType) -> Iterator[CodeType]:
    """Code whose locals have the index: a comprehension of its own before Python 3.12, the function's after."""
    if VARIABLE in (*code.co_varnames, *code.co_cellvars):
        yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _loops(inner)
