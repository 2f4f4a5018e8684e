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

from gobrrr.capture.sampler import Sampler

_LOOK = 0.05


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
        self._flag[:16] = struct.pack("<dd", 1.0 if on else 0.0, interval)

    def close(self) -> None:
        """End sampling; the page itself is left to the interpreter, workers may still read it."""
        with contextlib.suppress(ValueError):
            self.switch(False, 0.0)

    def fetched(self) -> None:
        """A fetcher was asked for a batch: in a worker's first one the sampling thread starts."""
        pid = os.getpid()
        if pid == self._pid:
            return
        self._batches += 1
        if self._started_in != pid:
            self._started_in = pid
            self._batches = 1
            threading.Thread(
                target=self._follow, args=(threading.get_ident(),), name="gobrrr-worker", daemon=True
            ).start()

    def _state(self) -> tuple[bool, float]:
        on, interval = struct.unpack("<dd", self._flag[:16])
        return on > 0, interval

    def _follow(self, thread: int) -> None:
        while True:
            on, interval = self._state()
            if on:
                with contextlib.suppress(Exception):
                    self._sample(thread, interval)
            time.sleep(_LOOK)

    def _sample(self, thread: int, interval: float) -> None:
        sampler = Sampler(thread, interval, self._user.is_user)
        before = self._batches
        began = time.perf_counter_ns()
        sampler.start()
        while self._state()[0]:
            time.sleep(_LOOK)
        sampler.stop()
        found = {"type": "worker", "pid": os.getpid(), "batches": self._batches - before}
        found |= {"wall_ns": time.perf_counter_ns() - began, "samples": sampler.as_json()}
        path = Path(self._folder) / f"worker-{os.getpid()}-{began}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.rename(path)
