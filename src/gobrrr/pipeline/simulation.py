"""Simulate what padding, bucketing and packing would make of the lengths that this run's batches had."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from gobrrr.data.advice import Advice, simulate
from gobrrr.ledger.model.ledger import Ledger, Sequences, Ways

FINEST, LARGEST_BATCH = 16_384, 1_024
"""Longer rows are simulated in units of several tokens, and larger batches as this one: a file may say anything, and
the answer is to be there in a second."""


def simulated(ledger: Ledger) -> Ledger:
    """The ledger with what each way of making batches would reach, where the lengths are known."""
    found = ledger.sequences
    if found is None or not found.lengths:
        return ledger
    return replace(ledger, sequences=replace(found, ways=_ways(_advice(found))))


def _advice(found: Sequences) -> Advice:
    unit = -(-found.widest // FINEST)
    histogram: Counter[int] = Counter()
    for length, number in found.lengths:
        histogram[-(-length // unit)] += number
    batch_size = min(found.batch_size, LARGEST_BATCH)
    return simulate(histogram, batch_size=batch_size, capacity=-(-found.widest // unit))


def _ways(advice: Advice) -> Ways:
    return Ways(
        advice.pad_to_cap, advice.pad_in_collate, advice.bucketing, advice.packing, advice.packing_bound,
        advice.long_share, advice.nothing_to_gain,
    )  # fmt: skip
