"""At which user line, in which module and phase the main thread was at any nanosecond of the profiled window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gobrrr.recording.facts import Span
from gobrrr.recording.run import LineLog

Ints = npt.NDArray[np.int64]
# The log's ops, as capture.linelog writes them.
CALL, LINE, RETURN, MODULE, MODULE_END, BACKWARD, BACKWARD_END = range(7)


@dataclass(frozen=True)
class Place:
    """User lines innermost first, the module that runs ("" outside), and whether a backward pass does."""

    where: tuple[Span, ...] = ()
    module: str = ""
    backward: bool = False


NOWHERE = Place()


@dataclass(frozen=True)
class Places:
    """`times[i]` is when `states[i]` (into `places`) begins."""

    times: Ints
    states: npt.NDArray[np.int32]
    places: tuple[Place, ...]

    def at(self, times: Ints) -> npt.NDArray[np.int32]:
        """Index into `places` for each time; 0 is NOWHERE."""
        if not len(self.times):
            return np.zeros(len(times), np.int32)
        found = np.searchsorted(self.times, times, "right") - 1
        return np.where(found >= 0, self.states[np.maximum(found, 0)], 0).astype(np.int32)


class _Replay:
    """Replays the log: a stack of user frames, one of modules, one of backward passes."""

    def __init__(self, log: LineLog) -> None:
        self.log = log
        self.frames: list[tuple[int, int]] = []
        self.modules: list[int] = []
        self.backward = 0
        self.known: dict[tuple[tuple[tuple[int, int], ...], int, bool], int] = {((), -1, False): 0}
        self.places = [NOWHERE]

    def step(self, op: int, number: int, line: int) -> None:
        if op == LINE and self.frames:
            self.frames[-1] = (number, line)
        elif op == CALL:
            self.frames.append((number, line))
        elif op == RETURN and self.frames:
            self.frames.pop()
        elif op == MODULE:
            self.modules.append(number)
        elif op == MODULE_END and self.modules:
            self.modules.pop()
        elif op in (BACKWARD, BACKWARD_END):
            self.backward += 1 if op == BACKWARD else -1

    def state(self) -> int:
        key = (tuple(self.frames), self.modules[-1] if self.modules else -1, self.backward > 0)
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = len(self.places)
            self.places.append(Place(self._spans(key[0]), self._module(key[1]), key[2]))
        return known

    def _spans(self, frames: tuple[tuple[int, int], ...]) -> tuple[Span, ...]:
        codes = self.log.codes
        named = [(codes[number], line) for number, line in reversed(frames) if 0 <= number < len(codes)]
        return tuple(Span(file, line, function) for (file, function, _), line in named)

    def _module(self, number: int) -> str:
        return self.log.modules[number] if 0 <= number < len(self.log.modules) else ""


def replay(log: LineLog | None, offset: int) -> Places:
    """The places of a line log; `offset` turns its times into the trace's."""
    if log is None or not log.t:
        return Places(np.zeros(0, np.int64), np.zeros(0, np.int32), (NOWHERE,))
    replayed = _Replay(log)
    states = np.empty(len(log.t), np.int32)
    for i, (op, number, line) in enumerate(zip(log.op, log.number, log.line, strict=True)):
        replayed.step(op, number, line)
        states[i] = replayed.state()
    return Places(np.array(log.t, np.int64) + offset, states, tuple(replayed.places))
