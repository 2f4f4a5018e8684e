"""Sums by a key: the way from many calls to what a person reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def sums(pairs: Iterable[tuple[K, float]]) -> dict[K, float]:
    """The sum of each key, in the order in which they come first; 0 of all others."""
    found: dict[K, float] = defaultdict(float)
    for key, value in pairs:
        found[key] += value
    return found
