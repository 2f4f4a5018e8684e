"""Which sequences go together into rows of a fixed length, so that hardly anything is padding."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gobrrr.errors import GobrrrError

TooLong = Literal["error", "drop"]


def pack(lengths: ArrayLike, capacity: int, *, too_long: TooLong = "error") -> Bins:
    """Best-fit decreasing: the longest sequence first, each into the fullest bin that still has room for it.

    `lengths` are tokens per sequence (integers from 1), `capacity` tokens per bin. Returns bins of indices into
    `lengths`, every index once. One that is longer than the capacity is an error, or left out with too_long="drop";
    where the program truncates, pass the truncated lengths. Equal lengths move together, so that the search costs
    by the number of lengths and not of sequences. Bins come fullest first: shuffle them.

    Source of the rule and of its bound, 11/9 of the best possible number of bins plus 4: Johnson (1973).
    """
    sizes = checked(lengths, capacity, too_long)
    kept = np.flatnonzero(sizes <= capacity) if len(sizes) and sizes.max() > capacity else None
    given = sizes if kept is None else sizes[kept]
    order = _by_length(given)
    counts = np.bincount(given, minlength=1)
    bins = _filled(plan(counts, capacity), order, counts)
    return bins if kept is None else Bins(kept[bins.indices], bins.offsets)


def efficiency(lengths: ArrayLike, bins: Bins, capacity: int) -> float | None:
    """Tokens in the bins over tokens that the bins have room for; None of no bins."""
    return int(bins.sums(lengths).sum()) / (len(bins) * capacity) if len(bins) else None


def lower_bound(lengths: ArrayLike, capacity: int) -> int:
    """Bins that any packing needs at least. Beyond the sum over the capacity, it knows that two sequences longer than
    half a bin never share one (bound L2 of Martello and Toth, 1990)."""
    return bound_of_counts(np.bincount(checked(lengths, capacity), minlength=1), capacity)


def bound_of_counts(counts: Ints, capacity: int) -> int:
    """The same from a histogram: `counts[n]` sequences of length n."""
    counts = np.pad(counts.astype(np.int64), (0, capacity + 1 - len(counts)))
    number, tokens = np.cumsum(counts), np.cumsum(counts * np.arange(capacity + 1))
    half = capacity // 2
    small = np.arange(1, half + 1)  # sequences below this length are left out of account
    alone = number[-1] - number[half]
    # Beside a long sequence there is room for what is at least `small`, unless it is longer than capacity - small.
    room = (number[capacity - small] - number[half]) * capacity - (tokens[capacity - small] - tokens[half])
    over = (tokens[half] - tokens[small - 1]) - room
    best = -(-over // capacity)
    return int(alone + max(0, int(best.max(initial=0))))


class Pattern(NamedTuple):
    """So many bins with the same lengths in them."""

    parts: tuple[tuple[int, int], ...]  # (length, how many of it), longest first
    num_bins: int


def plan(counts: Ints, capacity: int) -> list[Pattern]:
    """Best-fit decreasing over a histogram, `counts[n]` sequences of length n: what a search item by item finds.

    All bins with the same space left take a length at once. A visit leaves less than half of the space, so each
    pattern is visited at most log2(capacity) times: the cost grows with the number of lengths that occur.
    """
    full: list[Pattern] = []
    spaces: list[int] = []  # sorted, the keys of `unfilled`
    unfilled: dict[int, list[Pattern]] = {}

    def put(space: int, parts: tuple[tuple[int, int], ...], num_bins: int) -> None:
        if not space:
            full.append(Pattern(parts, num_bins))
            return
        if space not in unfilled:
            unfilled[space] = []
            insort(spaces, space)
        unfilled[space].append(Pattern(parts, num_bins))

    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            at = bisect_left(spaces, length)
            space = spaces.pop(at) if at < len(spaces) else capacity
            times = space // length  # a bin that took one stays the fullest with room, until it has none
            for parts, num_bins in unfilled.pop(space, None) or [Pattern((), -(-left // times))]:
                whole = min(num_bins, left // times)
                left -= whole * times
                part = left if whole < num_bins else 0  # fewer than `times` are left: one bin takes them
                left -= part
                for used, number in ((times, whole), (part, bool(part)), (0, num_bins - whole - bool(part))):
                    if number:
                        put(space - used * length, (*parts, (length, used)) if used else parts, int(number))
    return full + [pattern for space in spaces for pattern in unfilled[space]]


def _filled(patterns: list[Pattern], order: Ints, counts: Ints) -> Bins:
    """Bins with indices for a plan, which are taken for each length in the order in which they were given."""
    begins = ends(counts)[:-1].tolist()
    rows: list[Ints] = []
    sizes: list[tuple[int, int]] = []
    for parts, num_bins in patterns:
        columns = []
        for length, times in parts:
            first = begins[length]
            begins[length] = last = first + num_bins * times
            columns.append(order[first:last] if num_bins == 1 else order[first:last].reshape(num_bins, times))
        rows.extend(columns if num_bins == 1 else [np.concatenate(columns, axis=1).ravel()])
        sizes.append((sum(times for _, times in parts), num_bins))
    flat = np.concatenate(rows) if rows else order
    widths, repeats = np.array(sizes, dtype=np.int64).reshape(-1, 2).T
    return Bins(flat, ends(np.repeat(widths, repeats)))


def _by_length(sizes: Ints) -> Ints:
    """Indices sorted by length, equal ones in their order; in linear time (NumPy sorts 16 bits by radix)."""
    small = np.int32 if len(sizes) < 2**31 else np.int64
    low: Ints = np.argsort((sizes & 0xFFFF).astype(np.uint16), kind="stable").astype(small)
    if not len(sizes) or sizes.max() < 1 << 16:
        return low
    high = (sizes[low] >> 16).astype(np.uint16)  # lengths have at most 32 bits
    both: Ints = low[np.argsort(high, kind="stable")]
    return both


def checked(lengths: ArrayLike, capacity: int | None, too_long: TooLong = "error") -> NDArray[np.int64]:
    """Lengths as an array of integers; an error that names the first one that cannot be packed."""
    if too_long not in ("error", "drop"):
        raise GobrrrError(f"too_long={too_long!r}", "it is 'error' or 'drop'")
    if capacity is not None and not 1 <= capacity < 1 << 31:
        raise GobrrrError(f"capacity={capacity} is no length of a row", "give its number of tokens, 1 or more")
    try:
        sizes = np.asarray(lengths)
    except ValueError as error:
        raise GobrrrError("lengths are ragged", PER_SEQUENCE) from error
    sizes = integers(sizes)
    if sizes.size and sizes.min() < 1:
        at = int(np.argmax(sizes < 1))
        raise GobrrrError(f"sequence {at} has length {sizes[at]}", "leave empty sequences out before")
    if capacity is not None and too_long == "error" and sizes.size and sizes.max() > capacity:
        over = sizes > capacity
        at, more = int(np.argmax(over)), f" (and {over.sum() - 1} more)" if over.sum() > 1 else ""
        raise GobrrrError(
            f"sequence {at}{more} has {sizes[at]} tokens, a bin {capacity}",
            "truncate them (np.minimum(lengths, capacity)), leave them out (too_long='drop'), or raise the capacity",
        )
    return sizes


PER_SEQUENCE = "give one integer per sequence: [len(s) for s in sequences]"


def integers(sizes: NDArray[Any], at_least: int = 0) -> NDArray[np.int64]:
    """Lengths as 64-bit integers, so many at least; an error for what is no list of integers."""
    if sizes.ndim != 1 or sizes.size < at_least or (sizes.size and sizes.dtype.kind not in "iu"):
        raise GobrrrError(f"lengths have shape {sizes.shape} and type {sizes.dtype}", PER_SEQUENCE)
    return sizes.astype(np.int64, copy=False)


def check_rank(rank: int, num_replicas: int) -> None:
    """Raises GobrrrError for a rank that there is not."""
    if not 0 <= rank < num_replicas:
        what = f"there is no rank {rank} with num_replicas={num_replicas}"
        raise GobrrrError(what, "ranks count from 0 to num_replicas - 1")


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
            raise GobrrrError(
                f"num_ranks={num_ranks} is too small", "give the number of processes that train, 1 or more"
            )
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
