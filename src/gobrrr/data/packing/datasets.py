"""Data sets whose items are packs: lists of samples that share a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from gobrrr.data.packing.pack import TooLong, check_rank, checked, pack
from gobrrr.errors import GobrrrError

Pack = list[Any]


class PackedDataset(Dataset[Pack]):
    """Item i is the list of samples that bin i holds: `PackedDataset(dataset, pack(lengths, capacity))`, for a
    DataLoader that shuffles, with `PackingCollate`."""

    def __init__(self, dataset: Any, bins: Sequence[Sequence[int]]) -> None:
        self.dataset = dataset
        self.bins = bins

    def __len__(self) -> int:
        return len(self.bins)

    def __getitem__(self, at: int) -> Pack:
        return [self.dataset[index] for index in self.bins[at]]


def num_tokens(sample: Any) -> int:
    """Return the length of a mapping's `input_ids`, else of the sample itself."""
    return len(sample["input_ids"]) if isinstance(sample, Mapping) else len(sample)


class PackingDataset(IterableDataset[Pack]):
    """Packs samples as they come, without knowing all lengths: `window` of them at a time, best-fit decreasing. The
    fullest bins come out, in an order drawn from seed and epoch; up to half of the samples, those of the least full
    ones, are packed again with the next that come.

    A data set with `__getitem__` and `__len__` is divided among ranks and workers here, in its own order. One that can
    only be iterated is read by every worker from its beginning: where there is more than one, it has to divide itself,
    and `sharded=True` says that it does; else this is refused, for every sample would come several times. Ranks need
    not get equally many packs: `pack(...).split(...)` gives that.
    """

    def __init__(
        self, source: Any, capacity: int, *, window: int = 1024, length: Callable[[Any], int] = num_tokens,
        too_long: TooLong = "error", seed: int = 0, rank: int = 0, num_replicas: int = 1, sharded: bool = False,
    ) -> None:  # fmt: skip
        checked([], capacity, too_long)
        if window < 1:
            raise GobrrrError(f"window={window} is too small", "give 1 or more; 1024 to 4096 fill 99.6 to 99.9 %")
        check_rank(rank, num_replicas)
        self.source = source
        self.capacity = capacity
        self.window = window
        self.length = length
        self.too_long: TooLong = too_long
        self.seed = seed
        self.rank = rank
        self.num_replicas = num_replicas
        self.sharded = sharded
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Another order of packs; workers that persist keep the epoch with which they began."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Pack]:
        share, of = self._share()
        draw = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([self.seed, self.epoch, share])))
        held: Pack = []
        for number, sample in enumerate(self._samples(share, of)):
            if not self._fits(number, self.length(sample)):
                continue
            held.append(sample)
            if len(held) >= self.window:
                packs = self._packs(held)
                number = self._full(packs)
                yield from (packs[at] for at in draw.permutation(number))
                held = [sample for one in packs[number:] for sample in one]
        packs = self._packs(held)
        yield from (packs[at] for at in draw.permutation(len(packs)))

    def _share(self) -> tuple[int, int]:
        """Which part of the source this worker of this rank reads, and of how many."""
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return self.rank * workers + number, self.num_replicas * workers

    def _samples(self, share: int, of: int) -> Iterator[Any]:
        indexed = hasattr(self.source, "__getitem__") and hasattr(self.source, "__len__")
        if indexed and not isinstance(self.source, IterableDataset) and not self.sharded:
            return (self.source[at] for at in range(share, len(self.source), of))
        if self.sharded or of == 1:
            return iter(self.source)
        raise GobrrrError(
            f"{of} workers and ranks would each read all of a {type(self.source).__name__}: every sample {of} times",
            "let it divide itself (torch.utils.data.get_worker_info) and say sharded=True, or use one process",
        )

    def _fits(self, number: int, size: int) -> bool:
        """Whether a sample is packed; an error that says where in this worker's part of the source it lies."""
        if 1 <= size <= self.capacity:
            return True
        if size > self.capacity and self.too_long == "drop":
            return False
        raise GobrrrError(
            f"sample {number} of the source has {size} tokens, a bin {self.capacity}",
            "truncate in the data set, or leave out what is longer (too_long='drop'); leave empty ones out before",
        )

    def _full(self, packs: list[Pack]) -> int:
        """How many of the fullest packs come out, one at least: the others' samples are half of a window at most."""
        kept = np.cumsum([len(one) for one in reversed(packs[1:])])
        return len(packs) - int((kept <= self.window // 2).sum())

    def _packs(self, held: Pack) -> list[Pack]:
        """The samples in bins, the least full one last."""
        sizes = np.array([self.length(sample) for sample in held], dtype=np.int64)
        bins = pack(sizes, self.capacity)
        order = np.argsort(-bins.sums(sizes), kind="stable")
        return [[held[index] for index in bins[at]] for at in order.tolist()]
