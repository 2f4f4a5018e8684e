"""Shares and times as characters: percentages that add up as printed, bars to an eighth of a character, a history."""

from __future__ import annotations

import math
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
ASCII = {
    **dict.fromkeys(map(ord, _EIGHTHS[1:]), "#"), **{ord(a): b for a, b in zip(_LEVELS, "_.:-=+*#", strict=True)},
    ord("▌"): "#", ord("→"): "->", ord("·"): "|",
}  # fmt: skip
"""Replacements of our own characters where a terminal shows ASCII alone."""
USUAL, FAR = 0.1, 2.0
"""Share of the median that the height of a history spans at least, and times it that is as high as it gets: noise
does not look like a trend, and one long step does not flatten all others."""


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


def bar(share: float, width: int) -> str:
    """A bar for `share` of `width` characters; anything above zero shows at least its thinnest mark."""
    filled = max(0.0, min(1.0, finite(share))) * width
    eighths = max(round(8 * filled), 1 if filled > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def spark(values: Sequence[float]) -> str:
    """A character for each value, the higher the larger."""
    middle = sorted(values)[len(values) // 2] if values else 0.0
    low = min([*values, middle * (1 - USUAL)])
    high = min(max([*values, middle * (1 + USUAL)]), FAR * middle)
    if high <= low:
        return _LEVELS[0] * len(values)
    steps = len(_LEVELS) - 1
    return "".join(_LEVELS[round(steps * (min(value, high) - low) / (high - low))] for value in values)


def finite(value: float) -> float:
    """A share that can be drawn: not a number and infinity are nothing, and more than 1000 times the step is that."""
    return max(-1000.0, min(1000.0, value)) if math.isfinite(value) else 0.0
