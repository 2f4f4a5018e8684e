"""Simulate what padding, bucketing and packing would make of a program's sequence lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.data.packing.buckets import MEGA_BATCH, BucketBatchSampler, padded_efficiency
from gobrrr.data.packing.pack import bound_of_counts, plan
from gobrrr.errors import GobrrrError
from gobrrr.units import share

DRAWN = 100_000
"""Sequences that bucketing is simulated with at most: its efficiency is then known to a tenth of a percent."""


@dataclass(frozen=True)
class Advice:
    """Efficiencies are tokens over tokens computed on, 0 to 1, for each way of making batches."""

    capacity: int
    pad_to_cap: float
    pad_in_collate: float
    """To the longest of a random batch."""
    bucketing: float
    packing: float
    packing_bound: float
    """Share that no packing can exceed: tokens over the room of `lower_bound` bins."""
    num_bins: int
    lower_bound: int
    long_share: float
    """Sequences longer than half the capacity: no two of them share a bin."""

    @property
    def nothing_to_gain(self) -> bool:
        """By packing: more than half of the sequences exceed half the capacity, and hardly any bin holds two. What
        padding in the collate function and bucketing bring stands beside."""
        return self.long_share > 0.5

    def __str__(self) -> str:
        ways = (
            f"pad to {self.capacity} {share(self.pad_to_cap)}, pad in collate {share(self.pad_in_collate)}, "
            f"bucketing {share(self.bucketing)}, packing {share(self.packing)} "
            f"({self.num_bins:,} rows, at least {self.lower_bound:,})"
        )
        if self.nothing_to_gain:
            long = share(self.long_share)
            return f"{ways}. Nothing to gain by packing: {long} of the sequences exceed half of {self.capacity} tokens"
        return ways


def simulate(
    histogram: Mapping[int, int], *, batch_size: int, capacity: int | None = None, mega_batch: int = MEGA_BATCH,
    seed: int = 0,
) -> Advice:  # fmt: skip
    """The efficiency of every way, from `{length: number of sequences}`: the same input, the same answer.

    `capacity` is the length that rows are padded to or packed into (default: the longest sequence); longer ones count
    as cut to it. Padding is computed exactly, packing is planned, bucketing is drawn from `seed`.
    """
    counts = _counts(histogram, capacity)
    cap, lengths = len(counts) - 1, np.flatnonzero(counts)
    number, tokens = int(counts.sum()), int((counts * np.arange(len(counts))).sum())
    bins, bound = sum(pattern.num_bins for pattern in plan(counts, cap)), bound_of_counts(counts, cap)
    sample = _sample(lengths, counts[lengths], seed)
    drawn = BucketBatchSampler(sample, batch_size, mega_batch=mega_batch, seed=seed).batches(0)
    return Advice(
        capacity=cap,
        pad_to_cap=tokens / (number * cap),
        pad_in_collate=tokens / number / _mean_longest(counts, min(batch_size, number)),
        bucketing=padded_efficiency(sample, drawn),
        packing=tokens / (bins * cap),
        packing_bound=tokens / (bound * cap),
        num_bins=bins,
        lower_bound=bound,
        long_share=int(counts[cap // 2 + 1 :].sum()) / number,
    )


def _counts(histogram: Mapping[int, int], capacity: int | None) -> NDArray[np.int64]:
    """Sequences of each length up to the capacity."""
    held = {int(length): int(number) for length, number in histogram.items() if number}
    if not held or min(held) < 1 or min(held.values()) < 0:
        raise GobrrrError(
            "no histogram of lengths: " + (f"{min(held.items())} in it" if held else "it is empty"),
            "give {length: number of sequences}, lengths from 1, as collections.Counter(map(len, sequences)) does",
        )
    cap = max(held) if capacity is None else capacity
    if cap < 1:
        raise GobrrrError(f"capacity={cap} is no length of a row", "give its number of tokens, 1 or more")
    counts = np.zeros(cap + 1, dtype=np.int64)
    for length, number in held.items():
        counts[min(length, cap)] += number
    return counts


def _mean_longest(counts: NDArray[np.int64], batch_size: int) -> float:
    """The expected longest of so many sequences drawn without replacement: the sum over n of P(longest >= n), with
    P(longest <= n) = C(number of length <= n, batch) / C(number, batch)."""
    below = np.cumsum(counts).astype(np.float64)
    at_most = np.ones_like(below)
    for taken in range(batch_size):
        at_most *= np.maximum(0.0, below - taken) / (below[-1] - taken)
        if not at_most[:-1].any():
            break
    return float((1 - at_most[:-1]).sum())


def _sample(lengths: NDArray[np.int64], counts: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """All sequences, or `DRAWN` of them."""
    ends = np.cumsum(counts)
    if ends[-1] <= DRAWN:
        return np.repeat(lengths, counts)
    places = np.random.RandomState(seed).randint(0, int(ends[-1]), DRAWN, dtype=np.int64)
    return lengths[np.searchsorted(ends, places, side="right")]
