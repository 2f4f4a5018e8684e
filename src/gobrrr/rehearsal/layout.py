"""How a tensor lies in memory: how much it spans, and strides that a rehearsal can afford. Standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

SPARSE = 4
"""Largest span of a tensor that is made, in multiples of its elements: a head's part of a fused q, k, v takes every
third row, a gate's of an LSTM every fourth. Rows of a mapped file lie further apart, and are made next to each
other."""


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory from its first to its last, both included; dense where the strides are not known."""
    strides = _known(shape, strides)
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if 0 not in shape else 0


def affordable(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides, or where they span too much dense ones in their order; what is expanded (stride 0) stays so."""
    strides = _known(shape, strides)
    held = [size if step else 1 for size, step in zip(shape, strides, strict=True)]
    return list(strides) if span(shape, strides) <= SPARSE * prod(held) else _packed(held, strides)


def _known(shape: Sequence[int], strides: Sequence[int]) -> Sequence[int]:
    return strides if len(strides) == len(shape) else _packed(shape, range(len(shape), 0, -1))


def _packed(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Dense strides, the largest of `order` outermost; 0 stays 0."""
    strides, step = [0] * len(shape), 1
    for i in sorted(range(len(shape)), key=lambda i: (order[i], -i)):
        if order[i]:
            strides[i], step = step, step * max(1, shape[i])
    return strides
