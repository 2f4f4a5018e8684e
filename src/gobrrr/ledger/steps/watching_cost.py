"""Cost of watching: CPU time of steps with hooks held against that of the rest right behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import LoopSteps
from gobrrr.recording.run_folder.run import Recording

MIN_STRETCHES = 6
"""The fewest whose median has a 95 % interval."""
BEAT_NS = 6_000.0
"""Cost in ns of a step of a rest (counter, collector and iterators noted, all cold): 4 to 7 us were measured
(benchmarks/overhead.py)."""
_CYCLE = (event_kinds.WAKING, event_kinds.HOOKED, event_kinds.LEAVING, event_kinds.RESTING, event_kinds.RESTED)


class Watching(NamedTuple):
    """Shares of the unwatched step."""

    average: float
    """Over all steps outside windows, those of rests too."""
    low: float
    high: float
    """95 % interval of the average."""
    hooked: float
    """Cost of a step with all hooks, in the middle of a stretch."""


class _Stretch(NamedTuple):
    steps: int
    each: float
    """CPU ns that a step was longer."""
    all: float
    """The same of the whole stretch, hooks put in and taken out."""


def watching(recording: Recording) -> Watching | None:
    """None where the hooks rested too seldom to tell."""
    main = recording.main
    found = list(_stretches(recording, main)) if main is not None else []
    if main is None or len(found) < MIN_STRETCHES:
        return None
    usual = float(np.median([step.wall for step in main.resting])) or 1.0
    resting, num = len(main.resting), sum(not step.window for step in main.steps)
    paced = min(sum(stretch.steps for stretch in found), num - resting)

    def average(each: float, per_step: float) -> float:
        ns = (num - resting - paced) * each + paced * per_step + resting * BEAT_NS
        return max(0.0, ns / num / usual)

    each, per_step = [s.each for s in found], [s.all / s.steps for s in found]
    (low, high), (less, more) = median_interval(each), median_interval(per_step)
    middle = average(float(np.median(each)), float(np.median(per_step)))
    return Watching(middle, average(low, less), average(high, more), max(0.0, float(np.median(each))) / usual)


def _stretches(recording: Recording, main: LoopSteps) -> Iterator[_Stretch]:
    """Yield stretches that nothing came between: five readings in order, with steps of the main loop alone."""
    events = recording.events
    rows = events[events[:, 1] == event_kinds.SPENT]
    steps = events[
        (events[:, 1] == event_kinds.BOUNDARY) & (events[:, 2] == main.number) & (events[:, 3] == main.kind), 0
    ]
    other = events[np.isin(events[:, 1], (event_kinds.BOUNDARY, event_kinds.WINDOW_BEGIN)), 0]
    for first in np.flatnonzero(rows[:, 2] == event_kinds.WAKING):
        cycle = rows[first : first + len(_CYCLE)]
        if tuple(cycle[:, 2]) != _CYCLE:
            continue
        num = np.searchsorted(np.sort(steps), cycle[:, 0], "right")
        if np.count_nonzero((other > cycle[0, 0]) & (other <= cycle[-1, 0])) != num[-1] - num[0]:
            continue
        yield from _stretch(num.tolist(), cycle[:, 3].tolist())


def _stretch(num: list[int], cpu: list[int]) -> Iterator[_Stretch]:
    waking, hooked, leaving, resting, rested = num
    if not waking < hooked < leaving < resting < rested:
        return
    usual = (cpu[4] - cpu[3]) / (rested - resting)
    each = (cpu[2] - cpu[1]) / (leaving - hooked) - usual
    yield _Stretch(leaving - waking, each, cpu[3] - cpu[0] - (resting - waking) * usual)
