"""The profiled window: torch's profiler, and the line that ran at each moment."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gobrrr.capture.session import window_plan
from gobrrr.capture.steps import device_memory
from gobrrr.capture.steps.vitals import vitals
from gobrrr.capture.windows.line_log import LineLog
from gobrrr.capture.windows.window import Window
from gobrrr.recording.model import event_kinds as ev
from gobrrr.system import processes
from gobrrr.system.descriptors import files_are_limited


class ProfileWindow(Window):
    """Profiler and line log, within a budget of memory too: the profiler keeps its events there."""

    kind = ev.PROFILE
    late_ns = 500_000_000  # torch keeps 20 kB for each op in the end
    _rss = _peak = 0
    _profiled: Profiled | None = None
    _lines: LineLog | None = None

    @property
    def goal(self) -> int:
        """Steps that it wants."""
        config = self.host.config
        return config.steps or window_plan.profile_steps(self.step_ns, config.budget_ns)

    def start(self) -> bool:
        """Profiler first, then the line log; False where the program profiles."""
        host = self.host
        if files_are_limited():
            self.say("files may not grow beyond a limit of the process: no trace is written")
            return False
        self._rss, self._peak = dict(vitals()).get(ev.RSS, 0), processes.peak_bytes() or 0
        self._profiled = Profiled(host.trace_file())
        if not self._profiled.start():
            self.say("the program runs a profiler itself: no window of ours")
            return False
        self._lines = LineLog(host.user, self.names())
        self.instruments = (self._lines,)
        self._lines.start(sys._getframe())
        return True

    def exhausted(self, now: int) -> bool:
        """Whether time or bytes of the budget are spent."""
        grown = dict(vitals()).get(ev.RSS, 0) - self._rss
        return super().exhausted(now) or grown > self.host.config.budget_bytes

    def owns(self, profile: Any) -> bool:
        """Whether a profiler object is this window's own."""
        return self._profiled is not None and self._profiled.owns(profile)

    def found(self) -> dict[str, Any]:
        """The trace's file and the line log."""
        assert self._profiled is not None and self._lines is not None
        self._lines.stop(sys._getframe())
        written = self._profiled.stop()
        trace = self._profiled.path.name if written else None
        lines = self._lines.as_json()
        # Some GB where steps have many ops: the program has them not.
        grew = max(0, (processes.peak_bytes() or 0) - self._peak)
        return {"trace": trace, "stop_ns": self._profiled.stop_ns, "lines": lines, "peak_grew": grew}

    def off(self) -> None:
        """Line log first: it would note the profiler's end."""
        try:
            if self._lines is not None:
                self._lines.stop(sys._getframe())
        finally:
            if self._profiled is not None:
                self._profiled.abandon()


_begun = False


def leave_without_kineto() -> None:
    """In a forked child, once a window was profiled: let it end.

    Kineto has a thread, which is not in the child, and its destructor waits for it for ever when the child leaves by
    exit() (torch 2.13; children of multiprocessing and loader workers leave by _exit). What is registered last runs
    first: C's buffers are written out, then the child ends with its status, before any destructor.
    """
    if not _begun or sys.platform != "linux":
        return
    import ctypes

    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


def is_capturing() -> bool:
    """Whether the program records a CUDA graph at this moment: then nobody may wait for the device."""
    cuda = device_memory.cuda_in_use()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def _drained() -> bool:
    """Whether the program uses CUDA or ROCm devices; what was launched on them is done now, so that all work of the
    window, and no other, is launched within it. A device that nobody uses is left alone: its context takes 0.5 GB."""
    if (cuda := device_memory.cuda_in_use()) is None:
        return False
    if not is_capturing():
        for device in device_memory.in_use():
            cuda.synchronize(device)
    return True


class Profiled:
    """torch.profiler's engine without its Python post-processing: record, stop, write the trace.

    Reading events in Python takes 7 s where writing the trace and decoding it elsewhere takes 0.3 s.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._profile: Any = None
        self.stop_ns = 0

    def start(self) -> bool:
        """Begin; False where a profiler of the program's own is running."""
        import torch
        from torch.autograd import profiler

        global _begun
        if torch._C._autograd._profiler_enabled():
            return False
        _begun = True
        with_device = _drained()
        self._profile = profiler.profile(
            record_shapes=True, use_device="cuda" if with_device else None, use_kineto=True
        )
        with without_chatter():
            self._profile._prepare_trace()
            self._profile._start_trace()
        return True

    def stop(self) -> bool:
        """End and write the trace; False where nothing was recorded."""
        if self._profile is None:
            return False
        began = time.perf_counter_ns()
        _drained()
        with without_chatter():
            result = self._disable()
            if result is not None:
                result.save(str(self.path))
                self.path.chmod(0o600)
        self.stop_ns = time.perf_counter_ns() - began
        return result is not None

    def owns(self, profile: Any) -> bool:
        """Whether a profiler object is this one's."""
        return profile is self._profile

    def abandon(self) -> None:
        """End without a trace, whatever state it is in."""
        with contextlib.suppress(Exception), without_chatter():
            self._disable()
        with contextlib.suppress(Exception):  # loud rather than on
            self._disable()

    def _disable(self) -> Any:
        """Take the profiler off and give its result; None where it is off already."""
        if self._profile is None:
            return None
        import torch
        from torch.autograd import profiler

        profile, self._profile = self._profile, None
        profile.entered = False
        try:
            return torch._C._autograd._disable_profiler() if torch._C._autograd._profiler_enabled() else None
        finally:
            profiler._run_on_profiler_stop()  # type: ignore[no-untyped-call]  # a flag that torch itself asks for


# What Kineto's logger writes: "USDT:2026-11-21 01:15:32 26489:26489 SyncActivityProfilerHandler.cpp:52] profiler_start"
# and where the first profile of a process is made in another thread than the one that imported torch.
_CHATTER = re.compile(
    # torch's own, of short profiles
    rb"^(?:(?:\[rank\d+\]:)?\[W\d{4} [\d:.]+ (?:profiler_kineto|execution_trace_observer)\.cpp:\d+\]"
    rb"|[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.\w+:\d+\]|ERROR: External init callback).*\n?",
    re.MULTILINE,
)
_inherited: dict[int, int] = {}
"""Files that children have as their stderr for good, and how far each was read: another thread started them while it
was held back."""


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold stderr back for a moment, and let all but the profiler's own log lines through afterwards.

    Its log level would do too, but is read once per process: the program's own profiler would fall silent with ours.
    """
    try:
        stderr, held = os.dup(2), os.memfd_create("gobrrr-stderr")
    except (AttributeError, OSError):  # not Linux, or no stderr at all
        yield
        return
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        _inherited[held] = 0
        try:
            let_through()
        except BaseException:
            if _inherited.pop(held, None) is not None:
                os.close(held)
            raise


def let_through() -> None:
    """Write out what was written since the last look. The last words of children that outlive the program are lost."""
    heirs = _heirs()
    for held in list(_inherited):
        with contextlib.suppress(OSError):
            begin, parts = _inherited[held], list[bytes]()
            while part := os.pread(held, 1 << 16, begin):  # without moving the place at which others write
                parts.append(part)
                begin += len(part)
            _inherited[held] = begin
            rest = memoryview(_CHATTER.sub(b"", b"".join(parts)))
            while rest:
                rest = rest[os.write(2, rest) :]
        if os.fstat(held).st_ino not in heirs:
            _inherited.pop(held)
            os.close(held)


def _heirs() -> set[int]:
    """Inodes of what the children have as their stderr."""
    found = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in file.read_text().split():
                with contextlib.suppress(OSError):
                    found.add(Path(f"/proc/{pid}/fd/2").stat().st_ino)
    return found
