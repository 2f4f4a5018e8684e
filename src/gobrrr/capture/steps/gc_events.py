"""When the garbage collector ran, noted by C functions alone."""

from __future__ import annotations

import gc
import operator
from collections import deque
from functools import partial
from itertools import repeat
from time import perf_counter_ns

_KEPT = 4 * 1024  # moments kept; proposed: enough between two readings; collections lost in recordings would settle it
MIN_COLLECTION = 20_000
"""ns: a young generation's collection is not worth an event."""
Moment = tuple[int, bool, tuple[int, int, int], tuple[int, int, int]]
"""ns; whether the collector is on; per generation how much was made, and how much is allowed."""


class Collections:
    """The collector's last runs. `install()` and `remove()` are exact opposites.

    A callback in Python would do harm: a signal that arrives while the collector works is handled at the callback's
    first instruction, and what its handler raises (KeyboardInterrupt) is printed and lost there. So the callback is
    made of C functions; it reads as max(phase, info, key=note the time) and notes it twice at each start and end. With
    the time goes why it may have come: by itself it comes only when it is on and more objects were made than allowed.
    """

    def __init__(self) -> None:
        self._seen: deque[Moment] = deque(maxlen=_KEPT)  # two of each start, two of each end, so a multiple of four
        asked = (perf_counter_ns, gc.isenabled, gc.get_count, gc.get_threshold)
        noted = map(self._seen.append, zip(*(iter(ask, None) for ask in asked), strict=False))
        comparable = map(operator.is_, noted, repeat(0))
        self._callback = partial(max, key=partial(next, comparable))

    def install(self) -> None:
        """Begin to note."""
        gc.callbacks.append(self._callback)

    def remove(self) -> None:
        """End."""
        if self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)

    def pending(self) -> bool:
        """Whether there may be something to drain."""
        return len(self._seen) >= 4

    def drain(self) -> list[tuple[int, int, bool]]:
        """(end, duration) in ns of every run since the last call that took long enough, and whether gc.collect() was
        called for it."""
        found = []
        while len(self._seen) >= 4:
            (begun, is_on, made, allowed), _, _, (ended, *_) = (self._seen.popleft() for _ in range(4))
            if ended - begun > MIN_COLLECTION:
                by_itself = is_on and 0 < allowed[0] < made[0]
                found.append((ended, ended - begun, not by_itself))
        return found
