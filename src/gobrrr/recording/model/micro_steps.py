"""How many micro-steps make an update: batches that each had a forward and a backward pass of their own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.run import Recording
from gobrrr.words import BACKWARD

Ints = npt.NDArray[np.int64]
_TRAINING = 3  # flags of a forward: training mode, with gradients
_MAX_MODULES = 64  # counted; proposed: bounds the time; a program that calls more itself settles it


def micro_steps(recording: Recording, optimizer: int) -> float:
    """Return the median micro-steps per update of one optimizer; at least 1.

    A step that calls a model and its criterion, or passes back twice over one batch (a GAN's real and fake halves), is
    one micro-step: the least of what was counted between two updates is taken. Batches are counted only where a
    loader gives any, backward passes where the line log saw them.
    """
    events = recording.events
    updates = events[events[:, 1] == event_kinds.UPDATE_END]
    own = updates[:, 2] == optimizer
    if not own.any():
        return 1.0
    batches = events[(events[:, 1] == event_kinds.DATA_END) & (events[:, 3] == 0), 0]
    counts = [_forwards(events, updates[:, 0])[own]]
    if len(batches):
        counts.append(_before(batches, updates[:, 0])[own])
    seen = [float(np.median(count)) for count in counts] + _backwards(recording, updates, own)
    return max(1.0, min(seen))


def _before(times: Ints, updates: Ints) -> Ints:
    """How many of `times` lie between each update and the one before it."""
    at = np.searchsorted(updates, times, "left")
    return np.bincount(at[at < len(updates)], minlength=len(updates))


def _forwards(events: Ints, updates: Ints) -> Ints:
    """Per update the training forwards of the module that was called most."""
    rows = events[(events[:, 1] == event_kinds.FORWARD) & (events[:, 3] == _TRAINING)]
    modules = np.unique(rows[:, 2])
    if not len(modules) or len(modules) > _MAX_MODULES:
        return _before(rows[:, 0], updates)
    most: Ints = np.max([_before(rows[rows[:, 2] == module, 0], updates) for module in modules], axis=0)
    return most


def _backwards(recording: Recording, updates: Ints, own: npt.NDArray[np.bool_]) -> list[float]:
    """Median backward passes per update in the profiled window, if it has any."""
    window = recording.window("profile")
    if window is None or window.lines is None:
        return []
    times = np.array([t for t, op in zip(window.lines.t, window.lines.op, strict=True) if op == BACKWARD], np.int64)
    inside = (updates[:, 0] > window.began) & (updates[:, 0] <= window.ended)
    if not len(times) or not (inside & own).any():
        return []
    return [float(np.median(_before(times, updates[inside, 0])[own[inside]]))]
