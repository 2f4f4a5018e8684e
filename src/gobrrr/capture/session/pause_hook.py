"""How many steps does a rest have, and when is it over? The one thing that runs in it, as small as it can be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobrrr.capture.session.recorder import Recorder

GAP_STEPS, GAP_NS = 20, 50_000_000
"""Something else happened where a step takes so many usual ones and so much time more: an evaluation, a checkpoint."""


class Pulse:
    """The steps of one rest, by the times at which they ended. `left`: steps until `beat` next asks what is due."""

    def __init__(self, begun: int, left: int, step_ns: float) -> None:
        self.begun, self.left = begun, left
        self.times: list[int] = []
        self._told, self.told_ns = 0, begun
        self._longest = int(GAP_STEPS * step_ns) + GAP_NS

    @property
    def walls(self) -> list[int]:
        """ns of its steps."""
        return [end - start for start, end in pairwise([self.begun, *self.times])]

    def untold(self) -> list[int]:
        """The times that were not asked for yet."""
        times, self._told = self.times[self._told :], len(self.times)
        self.told_ns = times[-1] if times else self.told_ns
        return times

    def steps_in(self, ns: int) -> int:
        """How many of its steps take so long, 1 at least."""
        each = (self.times[-1] - self.begun) / len(self.times) if self.times else ns
        return max(1, int(ns / max(1.0, each)))

    def beat(
        self, recorder: Recorder, anchor: Callable[[], Any], due: Callable[[bool], object], other: Callable[..., object]
    ) -> Callable[..., None]:
        """The hook of a rest: it notes the time when the anchor comes, asks `due(after a gap)` when no step is left or
        this one was far too long, and hands anybody else to `other`."""
        append, left, longest, last = self.times.append, self.left, self._longest, self.begun

        def beat(who: Any, *rest: Any) -> None:
            nonlocal left, last
            if who is not anchor():
                other(who, *rest)
            elif get_ident() == recorder.thread:
                now = perf_counter_ns()
                append(now)
                left -= 1
                if not left or now - last > longest:
                    self.left = left
                    due(now - last > longest)
                    left = self.left
                last = now

        return beat
