"""From what was played to a saving: ns per step with an interval. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gobrrr.ledger.intervals import median_interval
from gobrrr.rehearsal.script import Part, Played, Scene
from gobrrr.rules.model import Rehearsed, Saving

FAITHFUL, ALIKE = 0.25, 0.05
"""Shares of what a part changes, and of its own time, by which the stage differs from the step: other neighbours in the
caches, other pages, tensors that come in another format than we read off the order. Proposed;
`python -m benchmarks.rehearsed` says how often they are enough."""


def outcome(scene: Scene, played: Played, wall_ns: float) -> Rehearsed | None:
    """What the remedy saves by what was played; None where it was not.

    Two readings: the share of its recorded time that each part loses, and the difference as it was timed. They agree
    where the stage is like the step; where not, low and ceiling hold both.
    """
    if not played.rounds or any(len(each) != len(scene.parts) for each in played.rounds):
        return None
    shares = [sum(map(_by_share, scene.parts, each)) for each in played.rounds]
    timed = [sum(map(_as_timed, scene.parts, each)) for each in played.rounds]
    today = sum(part.ns for part in scene.parts)
    more = 1.0 + (scene.left_ns / today if today else 0.0)  # what was left out does as the rest
    expected = more * float(np.median(shares))
    margin = FAITHFUL * _changed(scene, played) + ALIKE * today
    low = min(median_interval(shares)[0], median_interval(timed)[0]) - margin - scene.worse_ns
    high = max(more * median_interval(shares)[1], median_interval(timed)[1]) + margin + scene.better_ns
    ceiling = max(0.0, min(high, wall_ns))
    saving = Saving(max(0.0, min(low, expected)), max(0.0, min(expected, ceiling)), ceiling)
    return Rehearsed(scene.remedy, saving, change_ns=-expected, today_ns=today)


def _by_share(part: Part, sides: tuple[float, float]) -> float:
    today, then = sides
    if part.ns and today:
        return part.ns * (1.0 - then / today)
    return part.calls * (today - then)


def _as_timed(part: Part, sides: tuple[float, float]) -> float:
    return part.calls * (sides[0] - sides[1])


def _changed(scene: Scene, played: Played) -> float:
    """ns per step by which parts get faster or slower, each by its own median."""
    medians: Callable[[int, int], float] = lambda i, k: float(np.median([each[i][k] for each in played.rounds]))  # noqa: E731
    return sum(abs(_by_share(part, (medians(i, 0), medians(i, 1)))) for i, part in enumerate(scene.parts))
