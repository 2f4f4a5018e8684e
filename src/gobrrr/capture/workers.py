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
from pathlib import Path
from typing import Any

from gobrrr.capture.descriptors import NEW
from gobrrr.capture.sampler import Sampler

_LOOK = 0.05
_OFF, _ON, _OVER = 0.0, 1.0, -1.0


class WorkerSampling:
    """The main process switches; a forked worker, told of each batch by `fetched`, samples itself."""

    def __init__(self, folder: str, user: Any) -> None:
        self._folder, self._user = folder, user
        self._pid = os.getpid()
        self._flag = mmap.mmap(-1, 64)
        self._started_in = 0
        self._batches = 0

    def switch(self, on: bool, interval: float) -> None:
        """Tell all workers to sample, or to stop and write."""
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
            threading.Thread(
                target=self._follow, args=(threading.get_ident(),), name="gobrrr-worker", daemon=True
            ).start()

    def _set(self, state: float, interval: float) -> None:
        self._flag[:16] = struct.pack("<dd", state, interval)

    def _state(self) -> tuple[float, float]:
        state, interval = struct.unpack("<dd", self._flag[:16])
        return state, interval

    def _follow(self, thread: int) -> None:
        """The sampling thread of a worker; it ends when the watching does, and nothing that fails in it is shown."""
        with contextlib.suppress(Exception):
            self._follow_flag(thread)

    def _follow_flag(self, thread: int) -> None:
        while (state := self._state())[0] != _OVER:
            if state[0] == _ON:
                with contextlib.suppress(Exception):
                    self._sample(thread, state[1])
            time.sleep(_LOOK)

    def _sample(self, thread: int, interval: float) -> None:
        sampler = Sampler(thread, interval, self._user.is_user)
        before = self._batches
        began = time.perf_counter_ns()
        sampler.start()
        while self._state()[0] == _ON:
            time.sleep(_LOOK)
        sampler.stop()
        found = {"type": "worker", "pid": os.getpid(), "batches": self._batches - before}
        found |= {"wall_ns": time.perf_counter_ns() - began, "samples": sampler.as_json()}
        path = Path(self._folder) / f"worker-{os.getpid()}-{began}.json"
        part = path.with_suffix(".part")
        with os.fdopen(os.open(part, NEW, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(found))
        part.rename(path)
