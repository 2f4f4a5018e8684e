"""How is another thread's stack read while it runs, without the interpreter crashing?

To follow `f_back` makes frame objects, and to make one may set off a garbage collection (until Python 3.12). Finalizers
run then, and while they do the lock may be given away: the other thread returns from the very frame that an object is
being made for, which from then on points into memory that is something else's. Collections are off during the look, and
nothing sees it: from the first call to the last all is C, between which the lock is not given away.

Nor is a frame held when it is: one whose function has returned would keep all of its locals, and a program that counts
references to its objects would find ours among them.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator, Set
from itertools import accumulate, chain, compress, islice, repeat, takewhile
from operator import attrgetter, methodcaller
from types import CodeType, FrameType
from typing import Any

_call = methodcaller("__call__")
_place = attrgetter("f_code", "f_lineno")
Place = tuple[CodeType, int | None]


def look(thread: int, most: int, codes: Set[CodeType], name: str) -> tuple[list[Place], list[Any]]:
    """Return the code that a thread runs, innermost first, `most` frames at most, with the line that each was at;
    nothing where it has ended. Beside it the local variable of a name in those frames that run one of `codes`, None
    where it has none."""
    enabled: list[bool] = []
    frames: list[FrameType] = []
    places: list[Place] = []
    values: list[Any] = []
    wanted = set(map(id, codes))  # a code object is hashed by all that is in it
    those = compress(frames, map(wanted.__contains__, map(id, map(attrgetter("f_code"), frames))))
    innermost: Iterator[Any] = map(methodcaller("get", thread), map(_call, (sys._current_frames,)))
    steps: Iterator[object] = chain(
        map(enabled.append, map(_call, (gc.isenabled,))),
        map(_call, (gc.disable,)),
        # Under no name: the accumulation holds the last frame until it goes, which is with the next step.
        map(frames.extend, (islice(takewhile(bool, accumulate(chain(innermost, repeat("f_back")), getattr)), most),)),
        map(places.extend, (map(_place, frames),)),
        map(values.extend, (map(methodcaller("get", name), map(attrgetter("f_locals"), those)),)),
        map(_call, (frames.clear,)),
        map(_call, compress((gc.enable,), enabled)),
    )
    try:
        deque(steps, maxlen=0)
    except BaseException:
        if any(enabled):
            gc.enable()
        raise
    return places, values
