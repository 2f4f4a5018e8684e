"""Which steps say how long one is, where a device works beside the host?

Not those after the profiled window, in which launches cost more. Not the first ones, in which the host only fills the
device's queue. And not single ones at all where the host runs ahead of a device that is always behind: its steps are
short, and where it must wait, one is all the others' work.
"""

from __future__ import annotations

import numpy as np

from gobrrr.recording.model.steps import Step
from gobrrr.recording.run_folder.run import Recording

AHEAD = 1.02
"""Device's work over the median step of the host, from which on the host must run ahead: no step is shorter than its
work. Proposed: kernels of profiled steps took 1 % longer and less."""
FILLS = 0.8
"""Share of the device's work below which a first step only fills its queue: on an H200 they took 0.3 to 0.5 of it."""
ENOUGH = 10
"""Steps before the profiled window that stand for all: half a second has more of those that a device does quickly."""
BATCHES = 10
"""Batch means of which an interval is made: 10 to 30 are usual (Schmeiser 1982)."""


def around_profiling(recording: Recording, steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """Steps before the profiled window and after it, where a device works: there the maker's library that records
    kernels stays attached when the profiler is off, and each launch costs more from then on (pytorch's issue 144455;
    on an H200 steps that only launch took 1.2 to 1.4 times as long). Elsewhere none."""
    window, trace = recording.window("profile"), recording.trace
    if window is None or trace is None or not len(trace.kernels):
        return [], []
    return [s for s in steps if s.end <= window.began], [s for s in steps if s.start >= window.ended]


def lingering(before: list[Step], after: list[Step]) -> float:
    """By how much the first steps after the window are longer than the last ones before it, as a share, beyond what
    those became longer themselves; 0 where there are few."""
    if len(before) < 2 * ENOUGH or len(after) < ENOUGH:
        return 0.0
    earlier, last, first = (
        float(np.median([step.wall for step in steps]))
        for steps in (before[-2 * ENOUGH : -ENOUGH], before[-ENOUGH:], after[:ENOUGH])
    )
    return first / last - max(1.0, last / earlier) if last and earlier else 0.0


def runs_ahead(walls: np.ndarray, device_ns: float) -> bool:
    """Whether the usual step is shorter than the device's work in it."""
    return bool(len(walls)) and device_ns > AHEAD * float(np.median(walls))


def filling(walls: np.ndarray, device_ns: float) -> int:
    """How many first steps only fill the queue of a device that is then always behind; none where that is most."""
    short = walls < FILLS * device_ns
    first = int(np.argmin(short)) if not short.all() else 0
    return first if 2 * first < len(walls) else 0


def whole_cycles(walls: np.ndarray, device_ns: float) -> np.ndarray:
    """The steps after the first in which the host waited, up to the last one: what it was ahead by is then the same at
    both ends. All where there are no two of them."""
    waited = np.flatnonzero(walls >= device_ns)
    return walls[waited[0] + 1 : waited[-1] + 1] if len(waited) > 1 else walls


def batch_means(walls: np.ndarray) -> np.ndarray:
    """Means of runs of steps of one length, in order: what one step is late the next is early, so that single steps say
    nothing of how surely their mean is known. What is left over is at the beginning."""
    size = max(1, len(walls) // BATCHES)
    found: np.ndarray = walls[len(walls) % size :].reshape(-1, size).mean(axis=1)
    return found
