"""Rates of the process per plain step: time in Python's garbage collector, memory growth, page faults, busy cores.

Page faults are counted before and after the first profiled window too: a rate that is higher only afterwards was caused
by the profiler, not by the program.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import Step
from gobrrr.recording.run_folder.run import Recording
from gobrrr.units import PAGE

Ints = npt.NDArray[np.int64]
# Fewer samples than these say nothing of growth; more than those say no more.
MIN_SAMPLES, MAX_SAMPLES = 8, 200
# First steps touch everything for the first time: so many are left out, and so many are needed behind them.
WARM_UP, MIN_EARLY = 2, 3


def rates(recording: Recording, plain: list[Step]) -> dict[str, float | None]:
    """Growth, page faults, garbage collections and load per plain step, by the names of recording.facts."""
    if not plain:
        return {}
    wall = float(np.median([step.wall for step in plain]))
    stretches = plain_stretches(recording.events, plain)
    found: dict[str, float | None] = {
        **_collections(recording.events, plain, wall),
        "rss_growth_per_step": _growth(recording.events, stretches, wall, memory_kind(recording.events)),
        "device_growth_per_step": _growth(recording.events, stretches, wall, event_kinds.DEVICE),
    }
    faults = _rate(recording.events, event_kinds.FAULTS, stretches)
    found["minor_faults_per_step"] = faults * wall if faults is not None else None
    found["minor_faults_before"] = _faults_before(recording)
    found["minor_faults_after"] = _faults_after(recording, plain, wall)
    process, machine = (_rate(recording.events, kind, stretches) for kind in (event_kinds.CPU, event_kinds.BUSY))
    found["process_load"] = process
    if process is not None and machine is not None:
        found["other_load"] = max(0.0, machine - process)
    for name, kind in (("waiting_load", event_kinds.WAITED), ("stolen_load", event_kinds.STOLEN)):
        load = _rate(recording.events, kind, stretches)
        found[name] = max(0.0, load) if load is not None else None
    return found


def plain_stretches(events: Ints, plain: list[Step]) -> list[tuple[int, int]]:
    """Stretches of time with plain steps and without windows, from the first such step to the last."""
    begin, end = plain[0].start, plain[-1].end
    cuts = events[np.isin(events[:, 1], (event_kinds.WINDOW_BEGIN, event_kinds.WINDOW_END)), 0]
    edges = [begin, *np.sort(cuts[(cuts > begin) & (cuts < end)]).tolist(), end]
    starts = np.array([step.start for step in plain])
    return [(a, b) for a, b in pairwise(edges) if np.searchsorted(starts, a) < np.searchsorted(starts, b)]


def _collections(events: Ints, plain: list[Step], wall: float) -> dict[str, float | None]:
    """Garbage collections that ended within plain steps. They are journalled at the next boundary, out of order.
    Their time is their share of all plain time, at the length of the median step: a mean may be longer than that
    whole step. Runs are of the kind that took most: full collections by hand are not as many as young ones are."""
    rows = events[events[:, 1] == event_kinds.GC]
    starts = np.array([step.start for step in plain])
    ends = np.array([step.end for step in plain])
    at = np.searchsorted(starts, rows[:, 0], "left") - 1
    inside = (at >= 0) & (rows[:, 0] <= ends[np.maximum(at, 0)])
    rows, at = rows[inside], at[inside]
    asked = rows[:, 2] == 1
    spent = float(rows[:, 3].sum())
    by_hand = float(rows[asked, 3].sum()) / spent if spent else None
    return {
        "gc_ns_per_step": spent / max(1, sum(step.wall for step in plain)) * wall,
        "gc_usual_ns": float(np.median(np.bincount(at, rows[:, 3], len(plain)))),
        "gc_by_hand": by_hand,
        "gc_runs_per_step": float(np.count_nonzero(asked == ((by_hand or 0.0) >= 0.5))) / len(plain),
    }


def _samples(events: Ints, kind: int, begin: int, end: int) -> Ints:
    """(n, 2): time and value of one vital sign within a stretch."""
    rows = events[(events[:, 1] == kind) & (events[:, 0] >= begin) & (events[:, 0] <= end)]
    found: Ints = rows[:, [0, 3]]
    return found


def _rate(events: Ints, kind: int, stretches: list[tuple[int, int]]) -> float | None:
    """Increase of a counter per ns over the stretches; None where it was not seen twice in any."""
    parts = [_samples(events, kind, begin, end) for begin, end in stretches]
    rise = sum(int(part[-1, 1] - part[0, 1]) for part in parts if len(part) > 1)
    time = sum(int(part[-1, 0] - part[0, 0]) for part in parts if len(part) > 1)
    return rise / time if time > 0 else None


def _faults_before(recording: Recording) -> float | None:
    """Minor faults per step between the warm-up and the first profiled window, in the half that had fewer: some
    settle by themselves. None where that is too short to tell."""
    events, first = recording.events, _first_window(recording)
    if recording.main is None or first is None:
        return None
    early = [step for step in recording.main.steps if step.end <= first][WARM_UP:]
    if len(early) < MIN_EARLY:
        return None
    half = len(early) // 2
    halves = [
        _rate(events, event_kinds.FAULTS, [(steps[0].start, steps[-1].end)]) for steps in (early[:half], early[half:])
    ]
    known = [rate for rate in halves if rate is not None]
    grown = _rate(events, event_kinds.RSS, [(early[0].start, early[-1].end)]) or 0.0  # each page of it is touched once
    wall = float(np.median([step.wall for step in early]))
    return max(0.0, min(known) - max(0.0, grown) / PAGE) * wall if len(known) == 2 else None


def _faults_after(recording: Recording, plain: list[Step], wall: float) -> float | None:
    """Minor faults per step after the first profiled window."""
    first = _first_window(recording)
    later = [step for step in plain if first is not None and step.start >= first]
    rate = _rate(recording.events, event_kinds.FAULTS, plain_stretches(recording.events, later)) if later else None
    return rate * wall if rate is not None else None


def _first_window(recording: Recording) -> int | None:
    """When it opened; None where none did."""
    opened = recording.events[recording.events[:, 1] == event_kinds.WINDOW_BEGIN, 0]
    return int(opened.min()) if len(opened) else None


def memory_kind(events: Ints) -> int:
    """The kind that tells what a process holds: an older recording has mapped files in it."""
    return event_kinds.OWN if (events[:, 1] == event_kinds.OWN).any() else event_kinds.RSS


def _growth(events: Ints, stretches: list[tuple[int, int]], wall: float, kind: int) -> float | None:
    """Bytes per step over the longest stretch: what both halves of it show. A cache that fills once, or an
    evaluation that allocates, is in one half alone."""
    begin, end = max(stretches, key=lambda stretch: stretch[1] - stretch[0], default=(0, 0))
    return growth(_samples(events, kind, begin, end).astype(float), wall)


def growth(rows: npt.NDArray[np.float64], wall: float) -> float | None:
    """Bytes per `wall` ns that both halves of (n, 2) times and sizes show; None of too few."""
    if len(rows) < MIN_SAMPLES:
        return None
    rows = rows[:: -(-len(rows) // MAX_SAMPLES)]
    # A quarter of them apart at least, so that the saw-tooth of one step weighs little.
    halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    early, late = (median_slope(half, max(1, len(half) // 4)) for half in halves)
    return wall * (min(early, late, key=abs) if early * late > 0 else 0.0)


def median_slope(rows: npt.NDArray[np.generic], apart: int = 1) -> float:
    """The median slope of (n, 2) rows between those that are so many apart at least (Theil and Sen); 0 of none."""
    i, j = np.triu_indices(len(rows), apart)
    width = rows[j, 0] - rows[i, 0]
    slopes = (rows[j, 1] - rows[i, 1])[width > 0] / width[width > 0]
    return float(np.median(slopes)) if len(slopes) else 0.0
