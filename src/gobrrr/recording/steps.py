"""Which stretches of a journal are steps of which loop, which of them are plain, and how long each waited for data."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gobrrr.recording import marks

Ints = npt.NDArray[np.int64]
LOOP_NAMES = {1: "updates", 2: "forwards", 3: "steps()", 4: "batches"}


@dataclass(frozen=True)
class Step:
    """One step: [start, end) on the process's clock; `window` is the kind of window it lies in, 0 for none."""

    start: int
    end: int
    window: int
    settling: bool = False
    """It follows a window's end: a loader's queue is fuller than usual."""
    wait: int = 0

    @property
    def wall(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


@dataclass(frozen=True)
class LoopSteps:
    """The steps of one loop. `kind`: 1 optimizer updates, 2 top-level forwards, 3 explicit, 4 batches."""

    kind: int
    number: int
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def total(self) -> int:
        """Nanoseconds in all its steps."""
        return sum(step.wall for step in self.steps)

    @property
    def plain(self) -> list[Step]:
        """Steps outside windows and not settling, warm-up still in."""
        return [step for step in self.steps if not step.window and not step.settling]


def find_loops(events: Ints, settle: int = 2) -> list[LoopSteps]:
    """The loops of a journal, the one that takes most time first. `settle`: plain steps to doubt after a window."""
    found: dict[tuple[int, int], list[Step]] = defaultdict(list)
    waits = _waits(events)
    last: tuple[int, int] | None = None
    start = window = doubtful = 0
    for t, kind, number, value in events[_cuts(events)].tolist():
        if kind == marks.BOUNDARY:
            key = (value, number)
            if start and (last == key or last is None):
                found[key].append(Step(start, t, window, doubtful > 0 and not window, _between(waits, start, t)))
                doubtful -= not window
            last, start = key, t
        elif kind == marks.WINDOW_BEGIN:
            start, window = t, value
        else:
            start, window, doubtful = t, 0, settle
    loops = [LoopSteps(kind, number, tuple(steps)) for (kind, number), steps in found.items()]
    return sorted(loops, key=lambda loop: -loop.total)


def _cuts(events: Ints) -> npt.NDArray[np.bool_]:
    kinds = events[:, 1]
    cut: npt.NDArray[np.bool_] = np.isin(kinds, (marks.BOUNDARY, marks.WINDOW_BEGIN, marks.WINDOW_END))
    return cut


def _waits(events: Ints) -> Ints:
    """(n, 2) begin and end of every wait for a batch, in order."""
    found = []
    begin = 0
    for t, kind in events[np.isin(events[:, 1], (marks.DATA_BEGIN, marks.DATA_END))][:, :2].tolist():
        if kind == marks.DATA_BEGIN:
            begin = t
        elif begin:
            found.append((begin, t))
            begin = 0
    return np.array(found, np.int64).reshape(-1, 2)


def _between(waits: Ints, start: int, end: int) -> int:
    first = int(np.searchsorted(waits[:, 1], start, "right"))
    last = int(np.searchsorted(waits[:, 0], end, "left"))
    part = waits[first:last]
    return int(np.sum(np.minimum(part[:, 1], end) - np.maximum(part[:, 0], start))) if len(part) else 0
