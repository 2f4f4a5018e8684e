"""Find the steps of each loop in a journal, those of them that are plain, and how long each waited for data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import event_kinds
from gobrrr.spans import Ints, elapsed

CUT_SHORT = ("left early", "stop-after")
"""Reasons of an end that we made before the program's own."""


@dataclass(frozen=True)
class Step:
    """One step: [start, end) on the process's clock; `window` is the kind of window it lies in, 0 for none."""

    start: int
    end: int
    window: int
    settling: bool = False
    """It follows a window's end, where a loader's queue is fuller than usual, or a rest, where hooks come back."""
    wait: int = 0
    """Nanoseconds; not seen in a rest."""
    rests: bool = False
    """Hooks rested: it was counted, and nobody watched."""
    sizes: int = 0
    """Number of its update's set of shapes: layers that are trained in turn make steps of several kinds."""

    @property
    def wall(self) -> int:
        """Nanoseconds."""
        return self.end - self.start

    @property
    def plain(self) -> bool:
        """Outside windows and rests, and not settling."""
        return not (self.window or self.settling or self.rests)


class Timed(Protocol):
    """Numbers that a loop is ranked by: ns in its steps, and from the first to the last."""

    @property
    def kind(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def span(self) -> int: ...


Loop = TypeVar("Loop", bound=Timed)


@dataclass(frozen=True)
class LoopSteps:
    """The steps of a loop. `kind`: as in event_kinds.LOOPS."""

    kind: int
    number: int
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def key(self) -> tuple[int, int]:
        """Kind and number."""
        return self.kind, self.number

    @property
    def word(self) -> str:
        """Kind and number in a word, to be told which loop to measure."""
        return f"{self.kind}:{self.number}"

    @property
    def total(self) -> int:
        """Nanoseconds in all its steps."""
        return sum(step.wall for step in self.steps)

    @property
    def span(self) -> int:
        """Nanoseconds from its first step to its last."""
        return self.steps[-1].end - self.steps[0].start if self.steps else 0

    @property
    def plain(self) -> list[Step]:
        """Steps outside windows and rests and not settling, warm-up still in."""
        return [step for step in self.steps if step.plain]

    @property
    def resting(self) -> list[Step]:
        """Steps that were counted, and nobody watched."""
        return [step for step in self.steps if step.rests]


TRAINING, GRADIENTS = 3, 2
"""Value of a forward in training mode with gradients, and the bit of the second."""


def usual_mode(events: Ints, key: tuple[int, int]) -> int:
    """The mode of the last forward with gradients before a step of that loop ends, mostly, for a teacher's may come
    behind it, and a fine-tuning may train in evaluation mode; without any with gradients, of the last forward."""
    forwards = events[events[:, 1] == event_kinds.FORWARD]
    graded = forwards[(forwards[:, 3] & GRADIENTS) > 0]
    forwards = graded if len(graded) else forwards
    ends = events[(events[:, 1] == event_kinds.BOUNDARY) & (events[:, 2] == key[1]) & (events[:, 3] == key[0]), 0]
    before = np.searchsorted(forwards[:, 0], ends, "right") - 1
    modes = forwards[before[before >= 0], 3]
    return int(Counter(modes.tolist()).most_common(1)[0][0]) if len(modes) else TRAINING


class Finder:
    """Cuts a journal's events into steps, piece by piece: what one piece has begun a later one may end."""

    def __init__(self, settle: int = 2) -> None:
        self.settle = settle
        """Plain steps to doubt after a window."""
        self.window = 0
        """Kind of the window that is open, 0 for none."""
        self.rests = False
        """Whether hooks rest."""
        self._last: tuple[int, int] | None = None
        self._start = self._doubtful = self._sizes = self._asked = 0
        self._woken = False
        self._waits = np.empty((0, 2), np.int64)

    def feed(self, events: Ints) -> Iterator[tuple[tuple[int, int], Step]]:
        """(kind and number of the loop, step) of each step that ends in the next piece."""
        self._more_waits(events)
        cuts = events[_cuts(events)]
        waited = elapsed(np.append(cuts[:, 0], self._start), self._waits).tolist()
        before = waited.pop()
        for (t, kind, number, value), now in zip(cuts.tolist(), waited, strict=True):
            if kind == event_kinds.UPDATE_END:
                self._sizes = value
            elif kind == event_kinds.BOUNDARY:
                key = (value, number)
                if self._start and (self._last == key or self._last is None):
                    yield key, self._step(t, value, max(0, now - before))
                self._last, self._start, self._woken, before = key, t, False, now
            elif kind in (event_kinds.REST_BEGIN, event_kinds.REST_END):
                self.rests, self._woken = kind == event_kinds.REST_BEGIN, kind == event_kinds.REST_END
            elif kind == event_kinds.ASIDE:
                self._start, before = t, now
            elif kind == event_kinds.WINDOW_BEGIN:
                self._start, self.window, before = t, value, now
            else:
                self._start, self.window, self._doubtful, before = t, 0, self.settle, now

    def _step(self, t: int, kind: int, wait: int) -> Step:
        doubt = (self._doubtful > 0 or self._woken) and not self.window
        self._doubtful -= not self.window
        return Step(self._start, t, self.window, doubt, wait, self.rests, self._sizes * (kind == 1))

    def _more_waits(self, events: Ints) -> None:
        """Begin and end of every wait for a batch, in order; those before the step that is under way are let go."""
        found = []
        for t, kind in events[np.isin(events[:, 1], (event_kinds.DATA_BEGIN, event_kinds.DATA_END))][:, :2].tolist():
            if kind == event_kinds.DATA_BEGIN:
                self._asked = t
            elif self._asked:
                found.append((self._asked, t))
                self._asked = 0
        kept = self._waits[self._waits[:, 1] > self._start]
        self._waits = np.concatenate([kept, np.array(found, np.int64).reshape(-1, 2)])


def find_loops(events: Ints, settle: int = 2, cut_short: bool = False) -> list[LoopSteps]:
    """The loops of a journal, the one that takes most time first; what lies between the steps of a training, evaluation
    say, is part of it. `settle`: plain steps to doubt after a window. `cut_short`: we ended the program early, so that
    those that train come first, whatever was evaluated before."""
    found: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for key, step in Finder(settle).feed(events):
        found[key].append(step)
    loops = [LoopSteps(kind, number, tuple(steps)) for (kind, number), steps in found.items()]
    return by_time(loops, cut_short)


def by_time(loops: Iterable[Loop], cut_short: bool = False) -> list[Loop]:
    """Sort loops as find_loops() does."""
    loops = list(loops)
    training = max(
        (loop for loop in loops if loop.kind in event_kinds.TRAINS), key=lambda loop: loop.total, default=None
    )

    def rank(loop: Loop) -> tuple[bool, int]:
        return cut_short and loop.kind not in event_kinds.TRAINS, -(loop.span if loop is training else loop.total)

    return sorted(loops, key=rank)


def _cuts(events: Ints) -> npt.NDArray[np.bool_]:
    kinds = events[:, 1]
    cuts = (
        event_kinds.BOUNDARY,
        event_kinds.UPDATE_END,
        event_kinds.WINDOW_BEGIN,
        event_kinds.WINDOW_END,
        event_kinds.REST_BEGIN,
        event_kinds.REST_END,
        event_kinds.ASIDE,
    )
    cut: npt.NDArray[np.bool_] = np.isin(kinds, cuts)
    return cut
