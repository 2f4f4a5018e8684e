"""The profiled window: torch's profiler from one step boundary to another, written to a file within a budget."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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

        if torch._C._autograd._profiler_enabled():
            return False
        with_device = torch.cuda.is_available()
        self._profile = profiler.profile(
            record_shapes=True, use_device="cuda" if with_device else None, use_kineto=True
        )
        with _quiet():
            self._profile._prepare_trace()
            self._profile._start_trace()
        return True

    def stop(self) -> bool:
        """End and write the trace; False where nothing was recorded."""
        if self._profile is None:
            return False
        import torch

        began = time.perf_counter_ns()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        result = torch._C._autograd._disable_profiler()
        self._profile.entered = False
        self._profile = None
        result.save(str(self.path))
        self.stop_ns = time.perf_counter_ns() - began
        return True

    def abandon(self) -> None:
        """End without a trace, whatever state it is in."""
        if self._profile is not None:
            self._profile = None
            import torch

            with contextlib.suppress(Exception):
                torch._C._autograd._disable_profiler()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Kineto reads its log level when it first starts; only 99 silences the lines it prints per profile."""
    given = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = given or "99"
    try:
        yield
    finally:
        if given is None:
            os.environ.pop("KINETO_LOG_LEVEL", None)
