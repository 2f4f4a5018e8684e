"""Many short lists of indices in two arrays: the bins of a packing, the batches of an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gobrrr.errors import GobrrrError

Ints = NDArray[np.integer[Any]]


class Bins(Sequence[list[int]]):
    """Lists of indices, read as a list of lists is. `indices` holds them one after the other, list i from
    `offsets[i]` to `offsets[i + 1]`: ten million take 40 MB, and workers that are forked copy no page of them."""

    def __init__(self, indices: Ints, offsets: Ints) -> None:
        self.indices = indices
        self.offsets = offsets

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]]) -> Bins:
        """From plain lists."""
        plain = list(lists)
        flat = np.array([index for one in plain for index in one], dtype=np.int64)
        return cls(flat, ends([len(one) for one in plain]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, at: int) -> list[int]: ...
    @overload
    def __getitem__(self, at: slice) -> Bins: ...
    def __getitem__(self, at: int | slice) -> list[int] | Bins:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"bin {at} of {len(self)}")
        at %= len(self)
        found: list[int] = self.indices[self.offsets[at] : self.offsets[at + 1]].tolist()
        return found

    def __iter__(self) -> Iterator[list[int]]:
        return (self[at] for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"<{len(self):,} bins of {len(self.indices):,} indices>"

    def take(self, order: Ints) -> Bins:
        """The bins of those numbers, in that order."""
        sizes = np.diff(self.offsets)[order]
        offsets = ends(sizes)
        # Where each index comes from: the start of its bin, and how far it is into it.
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        return Bins(self.indices[np.repeat(self.offsets[:-1][order], sizes) + inside], offsets)

    def sums(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return for each bin the sum of `values` (one integer per index) over its indices."""
        running = ends(np.asarray(values)[self.indices])
        return running[self.offsets[1:]] - running[self.offsets[:-1]]

    def split(self, lengths: ArrayLike, num_ranks: int, seed: int = 0) -> list[Bins]:
        """One `Bins` for each rank, all equally long: every index once, and bins that are used in the same step of
        different ranks have nearly the same tokens and the same sum of squared lengths, which attention costs.

        Bins are halved until their number is a multiple of the ranks; one that cannot be halved is followed by empty
        ones. Shuffle all ranks' bins by the same seed, or the bins of a step are alike no more.
        """
        if num_ranks < 1:
            raise GobrrrError(f"bins for {num_ranks} ranks", "num_ranks is the number of processes that train")
        bins = multiple(self, num_ranks)
        sizes = np.asarray(lengths).astype(np.int64)
        tokens, squares = bins.sums(sizes), bins.sums(sizes**2)
        # Tokens in steps of 1 % of the fullest bin: what is as good as equally full is ordered by its squares.
        level = tokens * 100 // max(1, int(tokens.max(initial=0)))
        steps = np.lexsort((squares, level)).reshape(-1, num_ranks)
        steps = steps[np.random.RandomState(seed).permutation(len(steps))]
        return [bins.take(steps[:, rank]) for rank in range(num_ranks)]


def ends(sizes: ArrayLike) -> NDArray[np.int64]:
    """Where each of consecutive parts begins, and where the last one ends: [2, 3] -> [0, 2, 5]."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def multiple(bins: Bins, num_ranks: int) -> Bins:
    """The same indices in a number of bins that `num_ranks` divides: the largest are halved, again and again."""
    missing = -len(bins) % num_ranks
    if not missing:
        return bins
    offsets = bins.offsets
    for _ in range(missing):
        sizes = np.diff(offsets)
        largest = int(sizes.argmax()) if len(sizes) else 0
        middle = offsets[largest] + sizes[largest] // 2 if len(sizes) and sizes[largest] > 1 else offsets[-1]
        offsets = np.sort(np.append(offsets, middle))
    return Bins(bins.indices, offsets)
