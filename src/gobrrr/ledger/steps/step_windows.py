"""Which intervals of a profiled window are steps of the main loop, and which of them are of usual length?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.run import Recording, Window
from gobrrr.spans import Flags, Ints, lengths

UNUSUAL = 1.5  # as in recording.model.warmup: a step within this of the median looks like the others
# The dearest look at the budget that was measured, under the trace function and beside other processes: 0.2 to 0.45 ms.
OWN_WORK = 500_000
_MARKS = {name: mark for mark, name in event_kinds.WINDOW_NAMES.items()}


def step_spans(recording: Recording, window: Window) -> Ints:
    """(n, 2) begin and end of the main loop's steps in the window, on the steady clock; the whole window, cut evenly,
    where the journal has none."""
    main = recording.main
    kinds = (0,) if recording.offline else (_MARKS.get(window.kind),)
    found = [
        (step.start, min(step.end, window.ended))
        for step in (main.steps if main is not None else ())
        if step.window in kinds and window.began <= step.start < window.ended
    ]
    if not found:
        edges = np.linspace(window.began, window.ended, max(1, window.steps) + 1).astype(np.int64)
        found = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return np.array(found, np.int64)


def usual(spans: Ints, recording: Recording) -> Ints:
    """The spans without those that took far longer than the others: the plain step is a median too, and what another
    process takes from the profiled steps is no part of it. A wait for data does not count."""
    if len(spans) < 4 or recording.main is None:
        return spans
    waits = {step.start: step.wait for step in recording.main.steps}
    waited = np.array([waits.get(begin, 0) for begin in spans[:, 0].tolist()])
    kept: Ints = spans[alike(lengths(spans), waited)]
    return kept


def alike(walls: npt.NDArray[Any], waits: npt.NDArray[Any]) -> Flags:
    """Mark steps that did not take far longer than the others, but for their waits; of fewer than four all."""
    work = np.maximum(0, walls - waits)
    if len(work) < 4:
        return np.ones(len(work), bool)
    found: Flags = work <= UNUSUAL * np.median(work)
    return found


def after_watching(spans: Ints, *moments: Ints) -> Ints:
    """The spans from where the program goes on. A step ends in a hook, which asks before it returns whether the window
    has used up its time: the first op or line that follows, of the sorted `moments`, ends our own work."""
    begins = spans[:, 0]
    goes_on = np.minimum(begins + OWN_WORK, spans[:, 1])
    for times in moments:
        at = np.searchsorted(times, begins)
        found = at < len(times)
        goes_on[found] = np.minimum(goes_on[found], times[at[found]])
    return np.stack((goes_on, spans[:, 1]), axis=1)
