"""Samples that are the same in each epoch are computed in the first one and kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from gobrrr.errors import GobrrrError
from gobrrr.remedies.kept_samples import KeptSamples
from gobrrr.remedies.loader_workers import room
from gobrrr.remedies.loaders import AFTER_THE_FIRST, most_said
from gobrrr.remedies.model import Remedy
from gobrrr.rules.keeping import SAVED_BY_KEEPING
from gobrrr.rules.model import Saving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gobrrr.remedies.seams import Seams
    from gobrrr.rules.verdict.model import Report

MOST_DATASETS = 8
"""A program that makes a data set for each epoch keeps nothing that comes again."""


class ComputedOnce(Remedy):
    """For DataLoaders without workers whose samples are the same each time: no draw from torch's, NumPy's or Python's
    stream, four of them computed twice, and later on what kept_samples.py looks at. They stay in memory, a quarter of
    what is free at most. A data set that the program changes begins anew; one that turns out to give other samples ends
    the remedy, with an error where a kept sample had been given before. Loaders and data sets are the program's own."""

    name = "computed_once"
    title = "keeps samples in memory that are computed anew in each epoch"
    safety = "exact"
    place = "loader"
    unseen = AFTER_THE_FIRST
    codes = ("BRR401", "BRR405")
    conflicts = ("batched_fetch", "loader_workers", "one_worker", "decoded_once")
    by_hand = (
        'loader = DataLoader(gobrrr.data.cache(dataset, "cache/samples"), ...)  # kept on disk, for the next run too'
    )

    def probe(self) -> str:
        from torch.utils.data._utils import fetch

        return "" if hasattr(fetch, "_MapDatasetFetcher") else "this torch's loaders fetch in a way of their own"

    def predicts(self, report: Report) -> Saving:
        """Where a second epoch was seen to begin, and nothing random to be drawn: the wait, less reading them."""
        said = most_said(report, self.codes, SAVED_BY_KEEPING)
        if said is None:
            return Saving()
        most = super().predicts(report).ceiling_ns
        return Saving(0.0, min(said, most), most)

    def apply(self, seams: Seams) -> None:
        from torch.utils.data import get_worker_info
        from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

        plain_made: Any = Fetcher.__init__
        plain_fetch: Any = Fetcher.fetch
        books = _Books(self.name, seams)

        def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
            plain_made(fetcher, *args, **kwargs)
            if get_worker_info() is None:
                books.epoch_begins(fetcher.dataset)

        def fetch(fetcher: Any, wanted: Any) -> Any:
            if get_worker_info() is not None or not fetcher.auto_collation:
                return plain_fetch(fetcher, wanted)
            if threading.current_thread() is not threading.main_thread():
                seams.declined(self.name, "its batches are made beside the program, in another thread")
                return plain_fetch(fetcher, wanted)
            samples = books.samples(fetcher.dataset, wanted)
            return plain_fetch(fetcher, wanted) if samples is None else fetcher.collate_fn(samples)

        def change(kwargs: dict[str, Any]) -> dict[str, Any]:
            if workers := kwargs.get("num_workers"):
                seams.declined(self.name, f"the loader has {workers} workers: gobrrr.data.cache serves those")
            return kwargs

        seams.replace(Fetcher, "__init__", __init__)
        seams.replace(Fetcher, "fetch", fetch)
        seams.at_loader(change)


class _Books:
    """What is kept of each data set, and who hears of it."""

    def __init__(self, name: str, seams: Seams) -> None:
        self._name, self._seams = name, seams
        self._kept: dict[
            int, tuple[Any, KeptSamples | None]
        ] = {}  # the data set beside: its id is not given to another
        self._told = False

    def epoch_begins(self, dataset: Any) -> None:
        _, kept = self._kept.get(id(dataset), (None, None))
        if kept is not None:
            kept.epoch_begins()

    def samples(self, dataset: Any, indices: Sequence[Any]) -> Any:
        """Those of a batch; None where they are not kept."""
        kept = self._of(dataset)
        if kept is None:
            return None
        given = kept.give(indices, lambda wanted: _fetched(dataset, wanted))
        if kept.why_not:
            self._end(dataset, kept)
        elif not self._told:
            self._told = True
            self._seams.applied(
                self._name,
                f"samples of {type(dataset).__name__}",
            )
        return given

    def _of(self, dataset: Any) -> KeptSamples | None:
        if id(dataset) not in self._kept:
            self._kept[id(dataset)] = (dataset, self._begun(dataset))
        return self._kept[id(dataset)][1]

    def _begun(self, dataset: Any) -> KeptSamples | None:
        if len(self._kept) >= MOST_DATASETS:
            self._seams.declined(self._name, f"it makes more than {MOST_DATASETS} data sets")
            return None
        try:
            kept = KeptSamples(dataset, room(), self._seams.aside)
        except (TypeError, NotImplementedError):
            self._seams.declined(self._name, f"its data set (a {type(dataset).__name__}) has no length")
            return None
        kept.prove()
        if kept.why_not:
            self._seams.declined(self._name, kept.why_not)
            return None
        return kept

    def _end(self, dataset: Any, kept: KeptSamples) -> None:
        self._kept[id(dataset)] = (dataset, None)
        if kept.wrong:
            error = GobrrrError(f"{self._name}: {kept.why_not}", f"gobrrr tune --without {self._name}")
            self._seams.give_up(error)
        else:
            self._seams.declined(self._name, kept.why_not)


def _fetched(dataset: Any, wanted: Sequence[Any]) -> Any:
    """As torch's fetcher asks for a batch."""
    whole = getattr(dataset, "__getitems__", None)
    return whole(wanted) if whole else [dataset[index] for index in wanted]


REMEDY = ComputedOnce()
