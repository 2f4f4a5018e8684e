"""Samples inside loader workers, while the main process samples too: where do __getitem__ and collate spend their time?

Forked workers share one flag with the main process (a page of shared memory). A worker starts its sampler thread at its
first batch, looks at the flag twenty times a second, and writes what it saw when the flag goes down.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from gobrrr.capture.process.unlisted_thread import Unlisted
from gobrrr.capture.windows.sampler import Sampler, cpu_clock
from gobrrr.system.descriptors import NEW

_LOOK = 0.05  # s between looks at the switch; proposed: short beside a window; measured cost would settle it
_OFF, _ON, _OVER = 0.0, 1.0, -1.0
_FEEDER, _SERVER = "QueueFeederThread", "(_serve)"
"""Names of threads: multiprocessing.queues, and multiprocessing.resource_sharer's since Python 3.10."""


class WorkerSampling:
    """The main process switches; a forked worker, told of each batch by `fetched`, samples itself."""

    def __init__(self, folder: str, user: Any) -> None:
        self._folder, self._user = folder, user
        self._pid = os.getpid()
        self._flag = mmap.mmap(-1, 64)
        self._started_in = 0
        self._batches = 0

    def switch(self, on: bool, interval: float) -> None:
        """Tell all workers to sample, or to stop and write; a forked child has no say in that."""
        if os.getpid() == self._pid:
            self._set(_ON if on else _OFF, interval)

    def close(self) -> None:
        """End sampling; the page itself is left to the interpreter, workers may still read it."""
        with contextlib.suppress(ValueError):
            self._set(_OVER, 0.0)

    def fetched(self) -> None:
        """A fetcher was asked for a batch: in a worker's first one the sampling thread starts."""
        pid = os.getpid()
        if pid == self._pid:
            return
        self._batches += 1
        if self._started_in != pid and self._state()[0] != _OVER:
            self._started_in = pid
            self._batches = 1
            Unlisted(partial(self._follow, threading.get_ident())).start()

    def _set(self, state: float, interval: float) -> None:
        self._flag[:16] = struct.pack("<dd", state, interval)

    def _state(self) -> tuple[float, float]:
        state, interval = struct.unpack("<dd", self._flag[:16])
        return state, interval

    def _follow(self, thread: int) -> None:
        """The sampling thread of a worker; it ends when the watching does, and nothing that fails in it is shown."""
        with contextlib.suppress(Exception):
            while (state := self._state())[0] != _OVER:
                if state[0] == _ON:
                    with contextlib.suppress(Exception):
                        self._sample(thread, state[1])
                time.sleep(_LOOK)

    def _sample(self, thread: int, interval: float) -> None:
        sampler = Sampler(thread, interval, self._user.is_user)
        before, sent = self._batches, _sent_cpu_ns()
        began = time.perf_counter_ns()
        sampler.start()
        memory = Readings()
        while self._state()[0] == _ON:
            memory.look(self._batches)
            time.sleep(_LOOK)
        sampler.stop()
        after = _sent_cpu_ns()
        found: dict[str, Any] = {
            "type": "worker", "pid": os.getpid(), "batches": self._batches - before, "memory": memory.rows,
            "sent_cpu_ns": after - sent if sent is not None and after is not None else None,
            "wall_ns": time.perf_counter_ns() - began, "samples": sampler.as_json(),
        }  # fmt: skip
        path = Path(self._folder) / f"worker-{os.getpid()}-{began}.json"
        part = path.with_suffix(".part")
        with os.fdopen(os.open(part, NEW, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(found))
        part.rename(path)


def _sent_cpu_ns() -> int | None:
    """CPU ns so far of the threads that hand this worker's batches over: multiprocessing's, which pickles them and
    copies tensors to shared memory, and the one that gives out their descriptors. None where the system has no such
    clock."""
    if cpu_clock(threading.get_native_id()) is None:
        return None
    names = ((thread.name, thread.native_id) for thread in threading.enumerate())
    clocks = [cpu_clock(native or 0) for name, native in names if name.startswith(_FEEDER) or name.endswith(_SERVER)]
    total = 0
    for clock in clocks:
        with contextlib.suppress(OSError):  # it has ended
            total += time.clock_gettime_ns(clock) if clock is not None else 0
    return total


_ROLLUP = Path("/proc/self/smaps_rollup")
_PRIVATE = ("Private_Clean:", "Private_Dirty:")
EVERY_NS = 150_000_000  # ns between readings, at least; proposed: shows a rise; growth missed would settle it
COST = 0.05
"""Share of the time so far that reading may take of a core: the kernel walks all pages, 5 ms for each 500 MB. It is the
window's, whose steps are no plain ones."""


def private_bytes() -> int | None:
    """Return the private bytes of this process; None where the kernel does not tell (Linux since 4.14 does)."""
    try:
        lines = _ROLLUP.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in lines if line.startswith(_PRIVATE)]
    return sum(kib) * 1024 if kib else None


class Readings:
    """Memory that a worker shares with none, which it adds page by page as it writes to what was forked: now and then,
    each with how many batches had been made by then."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self._began = self._due = time.perf_counter_ns()
        self._cost = 0

    def look(self, batches: int) -> None:
        """Read once more, if it is time and the readings so far were cheap enough."""
        now = time.perf_counter_ns()
        if now < self._due or self._cost > COST * (now - self._began):
            return
        before = time.thread_time_ns()
        found = private_bytes()
        if found is not None:
            self.rows.append((batches, found))
        self._cost += time.thread_time_ns() - before
        self._due = now + EVERY_NS
