"""Puts the hooks to rest and wakes them: short steps are watched in stretches, and counted between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gobrrr.capture.hooks.hooks import Hooks
from gobrrr.capture.session.pacing import MOST, Pacing
from gobrrr.capture.session.pause_hook import Pulse
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.steps.loops import EXPLICIT, UPDATE
from gobrrr.recording.model import event_kinds as ev

Key = tuple[int, int]
TELL_NS = 1_000_000_000
"""How often a rest writes down the steps that it has counted, for who watches from outside: 0.1 ms, so 0.01 %."""
SETTLED = 3
"""Steps after which a change of hooks is no longer felt: the interpreter's caches of types are filled again."""


class Rests:
    """Rests of one loop at a time, of optimizer updates or explicit steps. `rested` is told which steps a rest had.

    What a rest does not know ends it: an optimizer that had no part in the steps before it, an explicit step; where the
    next stretch is earned also a loader's new iterator, or a step that takes many times its usual time. What watching
    costs is read off this thread's CPU time, which other processes on the same cores do not make longer.
    """

    def __init__(self, hooks: Hooks, recorder: Recorder, rested: Callable[[Key, Sequence[int], int], None]) -> None:
        self._hooks, self._recorder, self._rested = hooks, recorder, rested
        self._paces: dict[Key, Pacing] = {}
        self._loop: Key = (0, 0)
        self._last = self._steps = 0
        self._pulse: Pulse | None = None
        self._beat: Callable[..., None] | None = None
        self._planned, self._earliest = 0, 0.0
        self._read: dict[int, tuple[int, int]] = {}  # by the kind of reading: (steps so far, CPU ns)
        hooks.begun, hooks.silenced = self._iterator, self._silenced

    @property
    def enough(self) -> bool:
        """Whether there were as many as one run may have."""
        return sum(pacing.rests for pacing in self._paces.values()) >= MOST

    def step(self, loop: Key, now: int) -> None:
        """A watched step of a loop whose windows are done has ended, in the hook that noted it."""
        if loop[0] not in (UPDATE, EXPLICIT):
            self._last = 0
            return
        pacing = self._paces.setdefault(loop, Pacing())
        if loop != self._loop or not self._last:
            pacing.again()
            self._read = {}
            self._steps = 0
        else:
            self._steps += 1
            if self._steps == SETTLED:
                self._reading(ev.HOOKED)
            if steps := pacing.watched(now - self._last):
                self._begin(loop, now, steps, pacing.step_ns or now - self._last)
        self._loop, self._last = loop, now

    def explicit(self) -> bool:
        """The program marks a step: whether a rest has counted it."""
        if self._pulse is None or self._beat is None:
            return False
        if self._loop[0] == EXPLICIT:
            self._beat(_mark)
            return True
        self.end()
        return False

    def end(self) -> None:
        """Wake the hooks, and note what was counted."""
        pulse, self._pulse, self._beat = self._pulse, None, None
        if pulse is None:
            return
        self._recorder.rested(self._loop, len(pulse.times), pulse.untold())
        cost = self._cost()
        self._steps = 0
        self._reading(ev.WAKING)
        self._rested(self._loop, pulse.times, pulse.begun)
        self._paces[self._loop].rested(pulse.walls, cost)
        self._last = pulse.times[-1] if pulse.times else pulse.begun
        self._hooks.wake()

    def _begin(self, loop: Key, now: int, steps: int, step_ns: float) -> None:
        self._reading(ev.LEAVING)
        self._planned, self._earliest = steps, self._paces[loop].earliest()
        self._pulse = pulse = Pulse(now, SETTLED, step_ns)
        anchor = self._recorder.optimizers.refs[self._recorder.anchor] if loop[0] == UPDATE else _mark
        guarded = self._hooks.guarded
        self._beat = pulse.beat(self._recorder, anchor, guarded(self._due), guarded(self._other))
        self._recorder.rests(loop)
        self._hooks.rest(self._beat)

    def _due(self, gap: bool) -> None:
        """A rest is read twice, when it has settled and as many steps later as the stretch had; from then on it tells
        how far it is."""
        pulse = self._pulse
        if pulse is None:
            return
        left = self._planned - len(pulse.times)
        if left <= 0 or (gap and len(pulse.times) >= self._earliest):
            self.end()
        elif pulse.left:  # a gap that came before the next stretch was earned: on a busy machine they are many
            return
        elif ev.RESTING not in self._read:
            self._reading(ev.RESTING)
            pulse.left = min(left, self._steps)
        else:
            if ev.RESTED not in self._read:
                self._reading(ev.RESTED)
            self._tell(pulse)
            pulse.left = min(left, pulse.steps_in(TELL_NS))

    def _tell(self, pulse: Pulse) -> None:
        """Hand over what was counted; a step that is far shorter than those before it is asked no more often."""
        if pulse.times[-1] - pulse.told_ns >= TELL_NS // 2:
            self._recorder.counted(self._loop, pulse.untold())
            self._recorder.flush()

    def _reading(self, kind: int) -> None:
        steps = self._steps + (len(self._pulse.times) if self._pulse is not None else 0)
        self._read[kind] = steps, self._recorder.spent(kind)

    def _cost(self) -> float | None:
        """CPU ns that a step of the last stretch took more than one of this rest, hooks put in and out with it."""
        read, self._read = self._read, {}
        if not {ev.WAKING, ev.RESTING, ev.RESTED} <= set(read) or not self._steps:
            return None
        (_, waking), (settled, resting), (steps, rested) = read[ev.WAKING], read[ev.RESTING], read[ev.RESTED]
        each = (rested - resting) / max(1, steps - settled)
        return (resting - waking - settled * each) / self._steps

    def _other(self, optimizer: Any, *rest: Any) -> None:
        """Another optimizer than the anchor has stepped: one of several in each step, or something new."""
        if self._recorder.optimizers.number(optimizer) not in self._recorder.loops.optimizers:
            self.end()
            self._hooks.update_end(optimizer, *rest)

    def _silenced(self) -> None:
        """Nothing is seen for a while, and the next stretch begins anew."""
        self.end()
        self._last = 0

    def _iterator(self) -> None:
        """A loader's iterator is being made: an epoch begins, or an evaluation."""
        if self._pulse is not None and len(self._pulse.times) >= self._earliest:
            self.end()
        self._recorder.note(ev.ITER, -1, int(self._pulse is not None))


def _mark() -> object:
    """Stand for the caller where the program marks its steps itself."""
    return _mark
