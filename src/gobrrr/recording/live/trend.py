"""How long are a loop's steps, and how has that gone so far? In memory that does not grow with their number."""

from __future__ import annotations

import math
from collections import Counter

from gobrrr.recording.model.warmup import median

_FINENESS = 1 / math.log(1.01)
"""Lengths are counted in classes of 1 %: their middle is wrong by half of that at most."""
BINS = 32
"""Pieces of the run that are told apart, and up to twice as many."""
SAMPLE = 64
"""Steps of a piece whose median stands for it."""
QUARTERS = 8
"""Pieces below which nothing is said of a trend."""


class Trend:
    """The median of all steps, and of equal pieces of the run in their order."""

    def __init__(self) -> None:
        self.num = 0
        self._classes: Counter[int] = Counter()
        self._done: list[float] = []
        self._open: list[int] = []
        self._size, self._filled = 1, 0

    def add(self, wall: int) -> None:
        """A step of `wall` ns has ended."""
        self.num += 1
        self._classes[math.floor(math.log(max(1, wall)) * _FINENESS)] += 1
        if self._filled % max(1, self._size // SAMPLE) == 0:
            self._open.append(wall)
        self._filled += 1
        if self._filled == self._size:
            self._close()

    def _close(self) -> None:
        self._done.append(median(self._open))
        self._open, self._filled = [], 0
        if len(self._done) == 2 * BINS:
            self._done = [(a + b) / 2 for a, b in zip(self._done[::2], self._done[1::2], strict=True)]
            self._size *= 2

    @property
    def median(self) -> float | None:
        """ns, within half a percent; None before the first step."""
        left = (self.num + 1) // 2
        for number in sorted(self._classes):
            left -= self._classes[number]
            if left <= 0:
                return math.exp((number + 0.5) / _FINENESS)
        return None

    @property
    def history(self) -> tuple[float, ...]:
        """ns: medians of equal pieces of the run, at most 63 of them, the first that of the first steps."""
        return tuple(self._done)

    @property
    def change(self) -> float | None:
        """Share by which the last quarter of the run is longer than the first; None of too short a run. The first piece
        is left out: its steps warm up."""
        told = self._done[1:]
        if len(told) < QUARTERS:
            return None
        quarter = len(told) // 4
        return median(told[-quarter:]) / median(told[:quarter]) - 1
