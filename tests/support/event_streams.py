"""Programs on a clock of their own: they make the events that hooks would make, and windows open where a test says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gobrrr.capture.session import recorder as recorder_module
from gobrrr.capture.session.recorder import Recorder
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import Ints

MS = 1_000_000
INFERENCE, EVALUATION, TRAINING = 0, 1, 3


class _Journal:
    """Keeps the events that a writer would write."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def events(self, events: Any) -> None:
        self.values += events.tolist()


class Program:
    """A recorder whose clock moves only when work is done. `windows` maps the number of a boundary (from 1) to the
    kind of window that opens there and its steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, windows: dict[int, tuple[int, int]] | None = None) -> None:
        self.now = 1_000_000 * MS
        monkeypatch.setattr(recorder_module, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(recorder_module, "vitals", self._vitals)
        self._journal = _Journal()
        self.recorder = Recorder(lambda: self._journal, self._boundary)  # type: ignore[arg-type, return-value]
        self.boundaries = 0
        self._windows = windows or {}
        self._open: list[int] = []  # loop's kind and number, kind of the window, steps left
        self.slower = 1.0
        """What a profiled window makes of every piece of work."""
        self.rss, self.rss_per_step = 1 << 30, 0

    def _vitals(self) -> list[tuple[int, int]]:
        return [(event_kinds.CPU, self.now // 2), (event_kinds.RSS, self.rss), (event_kinds.FAULTS, self.now // 1000)]

    def _boundary(self, kind: int, number: int, now: int) -> None:
        self.boundaries += 1
        self.rss += self.rss_per_step
        if self._open and (kind, number) == tuple(self._open[:2]):
            self._open[3] -= 1
            if not self._open[3]:
                self._close(number)
        elif not self._open and self.boundaries in self._windows:
            window, steps = self._windows[self.boundaries]
            self._open = [kind, number, window, steps]
            self.now += 30 * MS  # instruments take their time to start and to stop, outside the steps
            self.recorder.note(event_kinds.WINDOW_BEGIN, number, window)

    def _close(self, number: int) -> None:
        window = self._open[2]
        self._open = []
        self.now += 300 * MS
        self.recorder.note(event_kinds.WINDOW_END, number, window)

    def work(self, ms: float) -> None:
        """Time passes."""
        profiled = self._open and self._open[2] == event_kinds.PROFILE
        self.now += int(ms * MS * (self.slower if profiled else 1.0))

    def wait(self, loader: int, ms: float) -> None:
        """The program waits for a batch and gets it."""
        self.recorder.note(event_kinds.DATA_BEGIN, loader)
        self.work(ms)
        self.recorder.batch(loader)

    def epoch_ends(self, loader: int, ms: float = 0) -> None:
        """The loader has no more batches, and stops its workers."""
        self.recorder.note(event_kinds.DATA_BEGIN, loader)
        self.work(ms)
        self.recorder.note(event_kinds.DATA_END, loader, 1)

    def forward(self, ms: float, module: int = 0, flags: int = TRAINING) -> None:
        """A module is called."""
        self.recorder.forward(module, flags)
        self.work(ms)

    def update(self, ms: float, optimizer: int = 0) -> None:
        """An optimizer steps."""
        self.recorder.note(event_kinds.UPDATE_BEGIN, optimizer)
        self.work(ms)
        self.recorder.update_end(optimizer)

    def train(self, steps: int, wait: float = 2, forward: float = 3, backward: float = 4, update: float = 1) -> None:
        """An epoch of the usual loop; its step is the sum of the four."""
        for _ in range(steps):
            self.wait(0, wait)
            self.forward(forward)
            self.work(backward)
            self.update(update)
        self.epoch_ends(0)

    @property
    def events(self) -> Ints:
        """The journal's events."""
        self.recorder.flush()
        return np.array(self._journal.values, np.int64).reshape(-1, 4)
