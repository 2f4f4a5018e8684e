"""Shares as a column of bars: percentages that add up as printed, and bars to an eighth of a character."""

from __future__ import annotations

import math
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def tenths(shares: Sequence[float]) -> list[float]:
    """Shares as percentages with one digit, rounded so that the column sums to its own rounded total.

    Largest remainders are rounded up (Hamilton's method), so that a ledger that sums to the step prints 100.0 %.
    """
    exact = [1000 * finite(share) for share in shares]
    floors = [math.floor(value) for value in exact]
    missing = round(math.fsum(exact)) - sum(floors)
    by_remainder = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    for index in by_remainder[: max(0, missing)]:
        floors[index] += 1
    return [value / 10 for value in floors]


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar for `share` of `width` characters; anything above zero shows at least its thinnest mark."""
    filled = max(0.0, min(1.0, finite(share))) * width
    if ascii_only:
        return "#" * max(round(filled), 1 if filled > 0 else 0)
    eighths = max(round(8 * filled), 1 if filled > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def finite(value: float) -> float:
    """A share that can be drawn: not a number and infinity are nothing, and more than 1000 times the step is that."""
    return max(-1000.0, min(1000.0, value)) if math.isfinite(value) else 0.0
