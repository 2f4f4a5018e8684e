"""Arms that come up beside each other get the cores one after the other where they would only take them away.

Threads of OpenMP that wait for one without a core spin on theirs: the first step of a small LSTM over 200 points of
time, 1 s alone, had not ended after 186 s beside four others like it (four cores, four threads each).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Protocol

LOOK_S = 5.0
"""Between looks, and of one arm's turn: imports take as long, one thread each, and go on beside each other."""
CROWD = 1.5
"""Threads that want a core, per core, from which arms take turns: two arms that compute, or more than six that import
on four cores."""


class Coming(Protocol):
    """An arm that comes up."""

    def wanting(self) -> int: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def wait_for(
    coming: Mapping[Coming, Future[None]], until: float, cores: int, over: threading.Event, look_s: float = LOOK_S
) -> None:
    """Until all are up (their futures done, and they stand still), or the time (of time.monotonic) is over, or `over`
    is set; then those that are not go on."""
    crowded = False
    while not over.is_set() and (late := _late(coming)) and (left := until - time.monotonic()) > 0:
        if len(late) > 1 and sum(each.wanting() for each in late) > CROWD * cores:
            crowded = True
            for each in late:
                _alone(each, coming, until, look_s)
        else:
            wait([coming[each] for each in late], min(look_s, left))
    if crowded:  # one may have been told to go on in the moment that it came up
        for each, future in coming.items():
            if future.done():
                each.pause()


def _late(coming: Mapping[Coming, Future[None]]) -> list[Coming]:
    return [each for each, future in coming.items() if not future.done()]


def _alone(each: Coming, coming: Mapping[Coming, Future[None]], until: float, turn_s: float) -> None:
    others = [other for other in _late(coming) if other is not each]
    for other in others:
        other.pause()
    try:
        wait([coming[each]], max(0.0, min(turn_s, until - time.monotonic())))
    finally:
        for other in others:
            if not coming[other].done():  # who came up meanwhile stands still by itself
                other.resume()
