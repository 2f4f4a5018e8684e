"""Small words that every rule uses: quantities with units, and what is worth telling."""

from __future__ import annotations

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.rules.model.finding import NOTE, Quantity, whole
from gobrrr.units import duration, share

SLOWED = 2.0
"""Profiled over plain step from which the shares within it are doubted (BRR903). With all of its options torch.profiler
makes a step of tiny ops 18 times longer."""


def time(ns: float) -> Quantity:
    """Nanoseconds per step."""
    return Quantity(round(ns), "ns")


def size(num_bytes: float) -> Quantity:
    """Bytes."""
    return Quantity(round(num_bytes), "B")


def ratio(value: float) -> Quantity:
    """A ratio or a share, without unit."""
    return Quantity(round(value, 4), "1")


def count(value: float) -> Quantity:
    """Return a count, per step unless its name says otherwise."""
    return Quantity(round(value, 2), "1")


def rate(flop_per_s: float) -> Quantity:
    """FLOP/s."""
    return Quantity(round(flop_per_s), "FLOP/s")


def per_step(ledger: Ledger, ns: float, rare: bool) -> str:
    """'5.00 ms (12.0 %) per step', of the mean step where it is rare: 'per step, on average'."""
    return f"{duration(ns)} ({share(ns / whole(ledger, rare))}) per step{', on average' if rare else ''}"


def worth_telling(ledger: Ledger, expected_ns: float) -> bool:
    """The expected saving reaches a note (3 % of the step): less than that is not shown at all."""
    return ledger.wall > 0 and expected_ns >= NOTE * ledger.wall


def slowed(ledger: Ledger) -> float:
    """Return the ratio of a profiled step to a plain one; 0 where either was not seen."""
    step = ledger.step
    return step.wall_ns / ledger.wall if step.profiled_count and ledger.wall > 0 else 0.0
