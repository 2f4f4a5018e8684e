"""Meters of an arm's blocks beside their time, in the user's process: the peak of their memory, their samples.

The peak is that of the steps between a grant and its end, in the process that makes them: what imports, warm-up and
compilation held, and have freed, is no part of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import weakref
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from gobrrr.capture.steps.device_memory import cuda_in_use
from gobrrr.errors import GobrrrError
from gobrrr.system import processes

CLEAR = Path("/proc/self/clear_refs")
RESET = "5"
"""Linux, proc_pid_clear_refs(5): the most that was resident becomes what is resident now (4.0 and later)."""
HINT = "tune for memory on Linux, or on a GPU"


class Gauge(Protocol):
    """Meter of one process."""

    def install(self) -> None:
        """torch has been imported, and nothing of the program has run."""

    def begin(self, warm: bool) -> None:
        """A block is about to begin; its clock does not run yet. `warm`: it is no part of the warm-up. Raises
        GobrrrError where it cannot be measured."""

    def step(self, counts: bool) -> None:
        """A step has ended; one that does not count was interrupted by another loop."""

    def end(self) -> dict[str, int]:
        """Return the figures of the block, whose clock has stopped."""


class Nothing:
    """Time alone."""

    def install(self) -> None: ...

    def begin(self, warm: bool) -> None: ...

    def step(self, counts: bool) -> None: ...

    def end(self) -> dict[str, int]:
        return {}


class Peak(Nothing):
    """Bytes that a block's steps held at most: of the device's tensors where torch has one, else resident."""

    def __init__(self) -> None:
        self._warm = False

    def begin(self, warm: bool) -> None:
        if (cuda := cuda_in_use()) is not None:
            for device in range(cuda.device_count()):
                cuda.reset_peak_memory_stats(device)
            return
        if warm and not self._warm:  # once: what steps free they take again, and a fault per page would be their time
            give_back()
        self._warm = warm
        reset()

    def end(self) -> dict[str, int]:
        return {"peak_bytes": _most()}


class Footprint(Nothing):
    """Bytes that the process held at most since it started: what its memory must have room for."""

    def end(self) -> dict[str, int]:
        return {"peak_bytes": _most()}


class Samples(Nothing):
    """Samples that DataLoaders have given to a block's steps, by the indices that they drew for each batch."""

    def __init__(self) -> None:
        self._drawn: weakref.WeakKeyDictionary[Any, deque[Any]] = weakref.WeakKeyDictionary()
        self._depth = self._step = self._block = 0

    def install(self) -> None:
        from torch.utils.data import dataloader

        kind: Any = dataloader._BaseDataLoaderIter
        draw, give, anew = kind._next_index, kind.__next__, kind._reset

        @functools.wraps(draw)
        def _next_index(iterator: Any) -> Any:
            index = draw(iterator)
            self._drawn.setdefault(iterator, deque()).append(index)
            return index

        @functools.wraps(give)
        def __next__(iterator: Any) -> Any:
            self._depth += 1
            try:
                batch = give(iterator)
            finally:
                self._depth -= 1
                drawn = self._drawn.get(iterator)  # workers have drawn ahead: the first is this batch's
                index = drawn.popleft() if drawn else []  # of one that could not be made as well
            if not self._depth:  # a data set may have a loader of its own
                self._step += len(index) if isinstance(index, (list, tuple)) else 1
                self.given(index, batch)
            return batch

        @functools.wraps(anew)
        def _reset(iterator: Any, *args: Any, **kwargs: Any) -> None:
            self._drawn.pop(iterator, None)  # workers that stay: what an epoch that was broken off has drawn ahead
            anew(iterator, *args, **kwargs)

        kind._next_index, kind.__next__, kind._reset = _next_index, __next__, _reset

    def given(self, index: Any, batch: Any) -> None:
        """A loader hands out a batch, of this index or these."""

    def begin(self, warm: bool) -> None:
        self._step = self._block = 0

    def step(self, counts: bool) -> None:
        self._step, self._block = 0, self._block + self._step * counts

    def end(self) -> dict[str, int]:
        return {"samples": self._block}


def of(objective: str | None) -> Gauge:
    """Return the gauge of an arm's process for an objective."""
    return {"memory": Peak, "footprint": Footprint, "throughput": Samples}.get(objective or "", Nothing)()


def _most() -> int:
    """Bytes of tensors that the devices in use held at most, else resident ones, since the last reset."""
    if (cuda := cuda_in_use()) is not None:
        return sum(cuda.max_memory_allocated(device) for device in range(cuda.device_count()))
    return resident_peak()


def unable() -> str:
    """Why the peak of resident memory cannot be measured here; nothing where it can."""
    try:
        reset()
    except GobrrrError as error:
        return error.message
    return ""


def reset() -> None:
    """From now on the most that is resident counts. Raises GobrrrError."""
    try:
        CLEAR.write_text(RESET)
    except OSError as error:
        why = f"{CLEAR}: {error.strerror}" if sys.platform == "linux" else f"{sys.platform} has no {CLEAR}"
        raise GobrrrError(f"the peak memory of steps cannot be measured here ({why})", HINT) from None


def resident_peak() -> int:
    """Bytes that were resident at most since the last reset. Raises OSError or KeyError."""
    return processes.sizes("VmHWM")["VmHWM"]


def give_back() -> None:
    """Give freed memory that glibc keeps back to the system: compilation frees gigabytes that would else be resident in
    every step after it. Other allocators do as they do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
