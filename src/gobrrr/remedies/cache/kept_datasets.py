"""Samples that are the same in each epoch are computed in the first one and kept, for each data set by itself."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import Counter
from typing import Any

from torch.utils.data import Subset, get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

from gobrrr.errors import GobrrrError
from gobrrr.remedies.cache.kept_samples import KeptSamples, Kind, Room, counts_in_full
from gobrrr.remedies.mechanism.seams import Seams

MOST_DATASETS = 8
"""Alive at once: of one that is made for each epoch nothing comes again."""
MADE_ANEW = 2
"""Data sets of a kind that went away before anything came again, from which the next one is left alone: the first may
have been made for the mean of its pixels."""


def keep_samples(name: str, seams: Seams, room: float) -> None:
    """Let fetchers in this process give kept samples, for the remedy of this name; `room`: bytes that they may take."""
    plain_made: Any = Fetcher.__init__
    plain_fetch: Any = Fetcher.fetch
    books = Books(name, seams, room)

    def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
        plain_made(fetcher, *args, **kwargs)
        if get_worker_info() is None:
            books.epoch_begins(fetcher.dataset)
            with contextlib.suppress(TypeError):  # of a list, say, nothing is kept
                weakref.finalize(fetcher, books.epoch_ends, weakref.ref(fetcher.dataset)).atexit = False

    def fetch(fetcher: Any, wanted: Any) -> Any:
        if get_worker_info() is not None or not fetcher.auto_collation or books.over:
            return plain_fetch(fetcher, wanted)
        if threading.current_thread() is not threading.main_thread():
            books.decline("its batches are made beside the program, in another thread")
            return plain_fetch(fetcher, wanted)
        samples = books.samples(fetcher.dataset, wanted)
        return plain_fetch(fetcher, wanted) if samples is None else fetcher.collate_fn(samples)

    def change(kwargs: dict[str, Any]) -> dict[str, Any]:
        if kwargs.get("num_workers"):
            books.decline("the loader has workers: compute the samples before training instead")
        return kwargs

    seams.undo(lambda: setattr(books, "over", True))
    seams.replace(Fetcher, "__init__", __init__)
    seams.replace(Fetcher, "fetch", fetch)
    seams.at_loader(change)


class Books:
    """Kept samples of each data set, for as long as the program has it; reports when they apply and why they end."""

    def __init__(self, name: str, seams: Seams, room: float) -> None:
        self._name, self._seams, self._room = name, seams, Room(room)
        self._kept: dict[int, KeptSamples | None] = {}
        self._told: set[str] = set()
        self._barren: Counter[Kind] = Counter()
        """Data sets of each kind that went away before one of their samples came again."""
        self._applied = self.over = False

    def decline(self, why: str) -> None:
        """Say why one is left alone, once."""
        if why not in self._told:
            self._told.add(why)
            self._seams.declined(self._name, why)

    def epoch_begins(self, dataset: Any) -> None:
        if (kept := self._kept.get(id(dataset))) is not None:
            kept.epoch_begins()

    def epoch_ends(self, dataset: weakref.ref[Any]) -> None:
        """The fetcher is let go, by the end of a loop or in the midst of it; a collector's thread looks at nothing."""
        there = dataset()
        kept = self._kept.get(id(there))
        if kept is None or self.over or threading.current_thread() is not threading.main_thread():
            return
        kept.epoch_ends(there)
        if kept.why_not:
            try:
                self._end(there, kept)
            except GobrrrError:  # nobody is told, and nothing can be raised here: the next batch will
                self._kept[id(there)] = kept

    def samples(self, dataset: Any, indices: Any) -> Any:
        """Return a batch's samples; None where they are not kept."""
        kept = self._of(dataset)
        if kept is None:
            return None
        whole = getattr(dataset, "__getitems__", None)  # as torch's fetcher asks for a batch
        compute = whole or (lambda wanted: [dataset[index] for index in wanted])
        given = kept.give(dataset, indices, compute)
        if kept.why_not:
            self._end(dataset, kept)
        elif kept.keeps and not self._applied:
            self._applied = True
            self._seams.applied(self._name, f"samples of {type(dataset).__name__}")
        return given

    def _of(self, dataset: Any) -> KeptSamples | None:
        known = id(dataset)
        if known not in self._kept and len(self._kept) < MOST_DATASETS:
            try:
                weakref.finalize(dataset, self._gone, known).atexit = False
            except TypeError:
                self.decline(f"its data set is a {type(dataset).__name__}: its samples are there already")
                return None
            self._kept[known] = self._begun(dataset)
        elif known not in self._kept:
            self.decline(f"it has more than {MOST_DATASETS} data sets at once")
        return self._kept.get(known)

    def _gone(self, known: int) -> None:
        if (kept := self._kept.pop(known, None)) is not None:
            self._barren[kept.kind] += kept.is_fruitless
            kept.forget()

    def _begun(self, dataset: Any) -> KeptSamples | None:
        try:
            length = len(dataset)
        except (TypeError, NotImplementedError):
            self.decline(f"its data set (a {type(dataset).__name__}) has no length")
            return None
        if _makes_batches(dataset):
            self.decline("its data set makes the samples of a batch together, which may depend on each other")
            return None
        kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}", length
        if self._barren[kind] >= MADE_ANEW:
            self.decline(f"its data set (a {type(dataset).__name__}) is made anew before its samples come again")
            return None
        return KeptSamples(kind, self._room, counts_in_full if self._barren[kind] else self._seams.aside)

    def _end(self, dataset: Any, kept: KeptSamples) -> None:
        self._kept[id(dataset)] = None
        kept.forget()
        if kept.wrong:
            self._seams.give_up(GobrrrError(f"{self._name}: {kept.why_not}", f"gobrrr tune --without {self._name}"))
        else:
            self.decline(kept.why_not)


def _makes_batches(dataset: Any) -> bool:
    """Whether it makes samples of a batch together, in a way of its own: Hugging Face's takes rows, each for itself. A
    Subset does what its data set does."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    known = (type(dataset).__module__, type(dataset).__name__) == ("datasets.arrow_dataset", "Dataset")
    return bool(getattr(dataset, "__getitems__", None)) and not known
