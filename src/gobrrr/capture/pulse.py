"""How many steps does a rest have, and when is it over? The one thing that runs in it, as small as it can be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobrrr.capture.recorder import Recorder

GAP_STEPS, GAP_NS = 20, 50_000_000
"""Something else happened where a step takes so many usual ones and so much time more: an evaluation, a checkpoint."""


class Pulse:
    """The steps of one rest, by the times at which they ended. `until`: when `beat` next asks whether it is over."""

    def __init__(self, begun: int, until: int, step_ns: float) -> None:
        self.begun, self.until = begun, until
        self.times: list[int] = []
        self._longest = int(GAP_STEPS * step_ns) + GAP_NS

    @property
    def walls(self) -> list[int]:
        """ns of its steps."""
        return [end - start for start, end in pairwise([self.begun, *self.times])]

    def beat(
        self, recorder: Recorder, anchor: Callable[[], Any], due: Callable[[bool], object], other: Callable[..., object]
    ) -> Callable[..., None]:
        """The hook of a rest: it notes the time when the anchor comes, asks `due(after a gap)` when it is time or the
        step was far too long, and hands anybody else to `other`."""
        append, until, longest, last = self.times.append, self.until, self._longest, self.begun

        def beat(who: Any, *rest: Any) -> None:
            nonlocal until, last
            if who is not anchor():
                other(who, *rest)
            elif get_ident() == recorder.thread:
                now = perf_counter_ns()
                append(now)
                if now > until or now - last > longest:
                    due(now - last > longest)
                    until = self.until
                last = now

        return beat
