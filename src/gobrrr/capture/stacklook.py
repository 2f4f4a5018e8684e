"""How is another thread's stack read while it runs, without the interpreter crashing?

To follow `f_back` makes frame objects, and to make one may set off a garbage collection (until Python 3.12). Finalizers
run then, and while they do the lock may be given away: the other thread returns from the very frame that an object is
being made for, which from then on points into memory that is something else's. Collections are off during the look, and
nothing sees it: from the first call to the last all is C, between which the lock is not given away.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from itertools import accumulate, chain, compress, islice, repeat, takewhile
from operator import attrgetter, methodcaller
from types import CodeType, FrameType
from typing import Any

_call = methodcaller("__call__")
_place = attrgetter("f_code", "f_lineno")


def frames_of(thread: int, most: int) -> list[tuple[FrameType, CodeType, int | None]]:
    """Frames of a thread, innermost first, `most` at most, with the line that each was at; none where it has ended."""
    enabled: list[bool] = []
    frames: list[FrameType] = []
    places: list[tuple[CodeType, int | None]] = []
    innermost: Iterator[Any] = map(methodcaller("get", thread), map(_call, (sys._current_frames,)))
    outwards = accumulate(chain(innermost, repeat("f_back")), getattr)
    steps: Iterator[object] = chain(
        map(enabled.append, map(_call, (gc.isenabled,))),
        map(_call, (gc.disable,)),
        map(frames.extend, (islice(takewhile(bool, outwards), most),)),
        map(places.extend, (map(_place, frames),)),
        map(_call, compress((gc.enable,), enabled)),
    )
    try:
        deque(steps, maxlen=0)
    except BaseException:
        if any(enabled):
            gc.enable()
        raise
    return [(frame, code, line) for frame, (code, line) in zip(frames, places, strict=True)]
