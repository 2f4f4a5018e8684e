"""Closures inside an optimizer's step: LBFGS evaluates one again and again, Lightning trains inside one.

A step that runs no backward runs no closure. In one that does, an evaluation begins where the step does or with its
forward, and ends with its backward; what lies between evaluations and after the last one is the optimizer's own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Evaluation = tuple[int, int]


def evaluations(updates: Ints, starts: list[int], ends: list[int], phases: tuple[str, ...]) -> Ints:
    """(n, 2): begin and end of every evaluation of a closure within the `updates` ((n, 2), disjoint and sorted).

    `starts`, `ends` and `phases` are of the ops, sorted by start.
    """
    found: list[Evaluation] = []
    begins = np.array(starts, np.int64)
    for begin, end in updates.tolist():
        first, last = np.searchsorted(begins, (begin, end))
        found += _within(begin, starts[first:last], ends[first:last], phases[first:last])
    return np.array(found, np.int64).reshape(-1, 2)


def _within(begin: int, starts: list[int], ends: list[int], phases: tuple[str, ...]) -> list[Evaluation]:
    found: list[Evaluation] = []
    opened, closed = begin, 0
    for start, end, phase in zip(starts, ends, phases, strict=True):
        if phase == "forward" and closed:
            found.append((opened, closed))
            opened, closed = start, 0
        if phase == "backward":
            closed = max(closed, end)
    return [*found, (opened, closed)] if closed else found
