"""Which settings of a program's loaders are tried, one after the other, by what was measured of those before. Pure.

    search = LoaderSearch(first=Setting(2), now=Setting(0), most_workers=4, room=4e9)
    while (setting := search.next()) is not None:
        search.feed(setting, Tried(...))                  # against the program as it is
    search.best()                                         # None: what the user set is as good as any

What is kept comes first, where that may be done: nothing else brings as much with so little. Then a walk that
begins at what the loader model advises (ledger/loading/loader_model.py): the fetch of whole batches, then more and
fewer workers until both neighbours are worse, then batches ahead, then pinned memory. What is better becomes the place
to go on from; of what is alike the fewest workers do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from gobrrr.ledger.loading.loader_model import ALIKE, PREFETCH

MOST_TRIALS = 8  # settings of a search: docs/decisions/0019-the-loader-model.md
MOST_AHEAD = 8
"""Batches that a worker holds ready at most."""
LADDER = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of workers: of many a neighbour that can be told from it."""
UP = 1.5
"""Least factor to a higher number of workers: of 3 % with each doubling a single one brings less than ALIKE."""


class Setting(NamedTuple):
    """Setting of all loaders of a program; their workers stay from epoch to epoch."""

    workers: int
    prefetch: int = PREFETCH
    """Batches that each worker holds ready; without workers always PREFETCH, so that equal settings are equal."""
    batched: bool = False
    """Rows of a batch are taken from memory at once."""
    pinned: bool = False
    kept: str = ""
    """The remedy that keeps what the first epoch computes, in the program's own process."""

    def with_workers(self, workers: int) -> Setting:
        """The same with so many workers."""
        return self._replace(workers=workers, prefetch=self.prefetch if workers else PREFETCH)

    def safety(self, now: Setting) -> str:
        """exact: the same numbers. order: draws inside of samples come from other random streams."""
        return "exact" if self.workers == now.workers else "order"

    def __str__(self) -> str:
        if self.kept:
            return self.kept
        parts = ["1 worker" if self.workers == 1 else f"{self.workers} workers"]
        parts += [f"{self.prefetch} batches ahead"] if self.workers and self.prefetch != PREFETCH else []
        parts += ["rows taken at once"] if self.batched else []
        parts += ["pinned"] if self.pinned else []
        return ", ".join(parts)


class Tried(NamedTuple):
    """Outcome of a setting: the mean log ratio of the program's step over its own, and the interval's lower end."""

    mean: float
    low: float
    held: float = 0.0
    """Bytes beside those of the program as it is."""


class LoaderSearch:
    """Proposes settings, MOST_TRIALS at most, and says which is to be kept."""

    def __init__(
        self, first: Setting, now: Setting, most_workers: int, room: float, *, batch_bytes: float = 0.0,
        can_batch: bool = False, can_pin: bool = False, keepers: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`now`: what the user set. `room`: bytes that workers may hold, `batch_bytes` of them each batch."""
        self.now, self._first, self._most = now, first, max(most_workers, now.workers, first.workers)
        self.room, self._batch_bytes, self._worker_bytes = room, batch_bytes, 0.0
        self._can_batch, self._can_pin, self._keepers = can_batch, can_pin, keepers
        self.enough = math.inf
        """Mean log ratio of a setting that is shown to be faster from which on no other is tried."""
        self.tried: dict[Setting, Tried] = {}
        self.failed: set[Setting] = set()
        self.too_large: set[Setting] = set()
        """Settings that were asked for and have no room."""

    def next(self) -> Setting | None:
        """Return the setting to try now; None where the walk is over."""
        if len(self.tried) + len(self.failed) >= MOST_TRIALS or self.has_enough():
            return None
        known = {self.now, *self.tried, *self.failed}
        return next((each for each in self._walk() if each not in known and self._fits(each)), None)

    def feed(self, setting: Setting, found: Tried) -> None:
        """It was measured."""
        self.tried[setting] = found
        if setting.workers:
            ready = setting.workers * setting.prefetch * self._batch_bytes
            self._worker_bytes = max(self._worker_bytes, (found.held - ready) / setting.workers)

    def fail(self, setting: Setting) -> None:
        """It could not be."""
        self.failed.add(setting)

    def best(self) -> Setting | None:
        """None where nothing is shown to be faster than the program as it is, by more than ALIKE."""
        found = self.likely()
        return found if found is not None and self.tried[found].low > 0 else None

    def has_enough(self) -> bool:
        """Whether what is to be kept is as good as it has to be."""
        found = self.best()
        return found is not None and self.tried[found].mean >= self.enough

    def likely(self) -> Setting | None:
        """The same where nothing is shown yet, by what was seen so far. What is shown comes before what only seems to
        be faster still: two workers of 1.79 (1.05 to 3.06) were lost to three of 1.88 (0.84 to 4.23); unless that is
        more than twice as much."""
        fitting = self._fitting()
        least = max(ALIKE, max(fitting.values(), default=0.0) / 2)
        shown = {each: mean for each, mean in fitting.items() if self.tried[each].low > 0 and mean > least}
        found = self._front(shown or fitting)
        return found if found != self.now and self.tried[found].mean > ALIKE else None

    def needs(self, setting: Setting) -> float:
        """Bytes: each worker its batches, and what a worker was seen to hold itself."""
        return setting.workers * (self._worker_bytes + setting.prefetch * self._batch_bytes)

    def _fits(self, setting: Setting) -> bool:
        if setting.workers and self.needs(setting) > self.room:
            self.too_large.add(setting)
            return False
        return True

    def _front(self, among: dict[Setting, float]) -> Setting:
        """Return the setting with the fewest workers, then the least else, among those and the user's own that are as
        good as the best within ALIKE."""
        fitting = {self.now: 0.0} | among
        enough = max(fitting.values()) - ALIKE
        return min(each for each, mean in fitting.items() if mean >= enough)

    def _fitting(self) -> dict[Setting, float]:
        """Means of what was measured and has room."""
        return {each: found.mean for each, found in self.tried.items() if found.held <= self.room}

    def _walk(self) -> Iterator[Setting]:
        """From where it stands, the next first; fewer workers than those advised where these have no room, or fail."""
        yield from (self.now._replace(kept=name) for name in self._keepers)
        yield self._first
        loading = {each: mean for each, mean in self._fitting().items() if not each.kept}
        if not loading and self._first != self.now:
            yield from (self._first.with_workers(n) for n in reversed(LADDER) if n < self._first.workers)
            return
        at = self._front(loading)
        if self._can_batch:
            yield at._replace(batched=not at.batched)
            yield at._replace(batched=True).with_workers(0)
        for middle in (at, self._first, max(loading, key=loading.__getitem__, default=at)):
            yield from (middle.with_workers(each) for each in self._neighbours(middle.workers))
        if at.workers and at.prefetch < MOST_AHEAD:
            yield at._replace(prefetch=2 * at.prefetch)
        if self._can_pin:
            yield at._replace(pinned=not at.pinned)

    def _neighbours(self, workers: int) -> Iterator[int]:
        """Up by so much that a gentle slope is told from none, as far as it goes, then the next number down."""
        rungs = [each for each in LADDER if each <= self._most]
        up = [each for each in rungs if each > workers]
        yield from ([each for each in up if each > UP * workers] or up[-1:])[:1]
        yield from [each for each in rungs if each < workers][-1:]
