"""The profiled window: torch's profiler from one step boundary to another, written to a file within a budget."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from gobrrr.capture.steps import device_memory
from gobrrr.capture.windows.kineto_output import without_chatter

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
