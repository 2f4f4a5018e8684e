"""Drawn stretches of time, and the single nanoseconds that they hold."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

Spans = list[tuple[int, int]]
ROUNDS = range(60)


def drawn(seed: int, most: int = 6, longest: int = 9) -> Spans:
    """A few stretches, some empty, some over each other."""
    chance = random.Random(seed)
    return [
        (at, at + chance.randrange(longest)) for at in (chance.randrange(40) for _ in range(chance.randrange(most)))
    ]


def apart(seed: int) -> Spans:
    """Disjoint ones in order, some that touch."""
    edges = sorted(random.Random(seed).sample(range(40), 8))
    return [(edges[i], edges[i + 1]) for i in range(0, 8, 2)]


def moments(spans: Iterable[tuple[int, int]]) -> set[int]:
    return {t for begin, end in spans for t in range(begin, end)}


def array(spans: Spans) -> np.ndarray:
    return np.array(spans, np.int64).reshape(-1, 2)
