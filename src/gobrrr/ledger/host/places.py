"""At which user line, in which module and phase the main thread was at any nanosecond of the profiled window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import LineLog
from gobrrr.spans import Ints
from gobrrr.words import BACKWARD, BACKWARD_END, CALL, LINE, MODULE, MODULE_END, RETURN


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
    types: Mapping[str, str] = field(default_factory=dict)
    """Types of modules by name, where recorded: 'GPT.blocks.0' is a 'Block'."""
    calls: Mapping[str, Ints] = field(default_factory=dict)
    """When each module was called, by name. What runs again in a backward pass (checkpoints) is no call."""

    @property
    def known(self) -> bool:
        """Whether there was a log: without one every place is NOWHERE."""
        return len(self.times) > 0

    def at(self, times: Ints) -> npt.NDArray[np.int32]:
        """Index into `places` for each time; 0 is NOWHERE."""
        if not self.known:
            return np.zeros(len(times), np.int32)
        found = np.searchsorted(self.times, times, "right") - 1
        return np.where(found >= 0, self.states[np.maximum(found, 0)], 0).astype(np.int32)


class _Replay:
    """Replays the log: a stack of user frames, one of modules, one of backward passes.

    A stack of frames is known by the number of its innermost frame: equal stacks have one number, so that a log of a
    million lines costs a million look-ups and no copies.
    """

    def __init__(self, log: LineLog) -> None:
        self.log = log
        self.stacks: list[tuple[int, int, int]] = [(-1, -1, 0)]  # (the stack outside, code, line) of each number
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.stack = 0
        self.modules: list[int] = []
        self.before: list[int] = []
        """Modules that were open when each backward pass began: it is part of none, what runs again in it is."""
        self.known: dict[tuple[int, int, bool], int] = {(0, -1, False): 0}
        self.places = [NOWHERE]

    def step(self, op: int, number: int, line: int) -> int:
        """Take in one event; the state after it."""
        if op == LINE and self.stack:
            self._push(self.stacks[self.stack][0], number, line)
        elif op == CALL:
            self._push(self.stack, number, line)
        elif op == RETURN and self.stack:
            self.stack = self.stacks[self.stack][0]
        elif op == MODULE:
            self.modules.append(number)
        elif op == MODULE_END and self.modules:
            self.modules.pop()
        elif op == BACKWARD:
            self.before.append(len(self.modules))
            self.modules.append(-1)
        elif op == BACKWARD_END and self.before:
            del self.modules[self.before.pop() :]
        return self._state()

    def _push(self, outside: int, code: int, line: int) -> None:
        key = (outside, code, line)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.stacks)
            self.stacks.append(key)
        self.stack = number

    def _state(self) -> int:
        key = (self.stack, self.modules[-1] if self.modules else -1, bool(self.before))
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = len(self.places)
            self.places.append(Place(self._spans(key[0]), self._module(key[1]), key[2]))
        return known

    def _spans(self, stack: int) -> tuple[Span, ...]:
        spans = []
        while stack > 0:
            stack, code, line = self.stacks[stack]
            if 0 <= code < len(self.log.codes):
                file, function, _ = self.log.codes[code]
                spans.append(Span(file, line, function))
        return tuple(spans)

    def _module(self, number: int) -> str:
        return self.log.modules[number] if 0 <= number < len(self.log.modules) else ""


def replay(log: LineLog | None, offset: int) -> Places:
    """The places of a line log; `offset` turns its times into the trace's."""
    if log is None or not log.t:
        return Places(np.zeros(0, np.int64), np.zeros(0, np.int32), (NOWHERE,))
    replayed = _Replay(log)
    events = zip(log.op, log.number, log.line, strict=True)
    states = np.fromiter((replayed.step(*event) for event in events), np.int32, len(log.t))
    types = {name: kind for name, kind in zip(log.modules, log.types, strict=False) if kind}
    times, places = np.array(log.t, np.int64) + offset, tuple(replayed.places)
    return Places(times, states, places, types, _calls(log, times, states, places))


def _calls(log: LineLog, times: Ints, states: npt.NDArray[np.int32], places: tuple[Place, ...]) -> dict[str, Ints]:
    forward = np.array([not place.backward for place in places], bool)[states]
    entered = np.flatnonzero((np.array(log.op) == MODULE) & forward)
    names = [places[state].module for state in states[entered].tolist()]
    found: dict[str, list[int]] = {}
    for name, time in zip(names, times[entered].tolist(), strict=True):
        found.setdefault(name, []).append(time)
    return {name: np.array(each, np.int64) for name, each in found.items() if name}
