"""When do the hooks stand, and when do they rest? Short steps are watched in stretches, and counted between."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from gobrrr.capture.hooks.hooks import Hooks
from gobrrr.capture.session.recorder import Recorder
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.event_kinds import EXPLICIT, UPDATES
from gobrrr.recording.model.warmup import median

BAR, BEAT = 0.01, 6_000
"""Share of the program's time that watching costs at most where steps take 1 ms and more; ns that a step costs in a
rest (counter, collector and iterators noted, all cold: benchmarks/overhead.py)."""
LEAST_SHARE, MOST_SHARE = 0.002, 0.006
"""Bounds of what is left for stretches: the counter alone is more than 1 % of the shortest steps (3 % are promised)."""
STRETCH = 32
"""Steps of the first watched stretch: putting hooks in and out costs as much as some ten watched steps."""
SLOWER = 1.01
"""Each stretch is so much longer than the one before: epochs' ends are looked for in longer and longer runs."""
MOST, MOST_BEFORE = 256, 128
"""Rests of one run, and those before a look that is to come later: one more lasts until then. CPython 3.13 caches
nothing more of a class whose attributes were set 1000 times (MAX_VERSIONS_PER_CLASS)."""
LONG_STEP = 30_000_000
"""ns; longer steps are all watched: hooks of 0.1 ms are no more than 0.3 % of them, which no pairing resolves."""
LONGEST_REST = 2_000_000_000
"""ns of usual steps, of the first: a cost misjudged in a noisy moment is soon judged again."""
KNOWN, KEPT = 3, 15
"""Costs of stretches from which the next one's is expected, and those of late that are."""
LEAST = 20_000.0
"""ns per step that hooks take at least, their code hot: readings on a busy machine may say less than nothing."""
MIN_REST, FIRST_REST = 8, 2
"""Steps of the shortest rest; times the stretch that a rest is long while costs are unknown."""
CYCLE = 128
"""Steps: among other ranks a rest ends at a multiple of it, so that all watch the same ones (proposed)."""
RESERVE = 4
"""Stretches that may be watched before they are earned, so that epochs' ends are seen when they come."""


def share(step_ns: float) -> float:
    """Return the share of the time that stretches may take where steps are so long."""
    return min(MOST_SHARE, max(LEAST_SHARE, BAR - BEAT / max(step_ns, 1.0)))


class Pacing:
    """The stretches and rests of one loop: a stretch is watched, what it cost is learned from the rest behind it.

    Time is counted in usual steps: neither other processes on the same cores nor a checkpoint earn the hooks time.
    """

    def __init__(self) -> None:
        self.rests = 0
        self.step_ns = 0.0
        """A step in which nobody watches; 0 before the first rest."""
        self._stretch: list[int] = []
        self._costs: deque[float] = deque(maxlen=KEPT)  # ns per watched step, hooks put in and out with it
        self._watched = self._steps = 0

    @property
    def length(self) -> int:
        """Steps of the next stretch."""
        return int(STRETCH * SLOWER**self.rests)

    def again(self) -> None:
        """Something came between: the stretch begins anew."""
        self._watched += len(self._stretch)
        self._steps += len(self._stretch)
        self._stretch = []

    def watched(self, wall: int) -> int:
        """A watched step of `wall` ns has ended: for how many the hooks may rest now, 0 for not yet."""
        self._stretch.append(wall)
        if len(self._stretch) < self.length:
            return 0
        stretch, step = len(self._stretch), self.step_ns or median(self._stretch)
        self.again()
        if step > LONG_STEP:
            return 0
        if len(self._costs) < KNOWN:
            return FIRST_REST * stretch
        most = LONGEST_REST * SLOWER**self.rests / step
        alone, all_of_them = self._owed(stretch, step) - stretch, self._owed(self._watched, step) - self._steps
        return int(max(MIN_REST, min(most, max(alone, all_of_them))))

    def rested(self, walls: Sequence[int], cost: float | None) -> None:
        """The rest that followed is over; `walls` are its steps, `cost` the ns that each watched step before it was
        longer, None where it was too short to tell."""
        self.rests += 1
        self._steps += len(walls)
        if len(walls) >= MIN_REST:  # fewer still feel the change of hooks, or an epoch's begin
            self.step_ns = median(walls)
        if cost is not None:
            self._costs.append(cost)

    def earliest(self) -> float:
        """Steps after which the rest that begins may end early, with what was not watched until now to spare; never
        before it tells what its stretch cost."""
        if len(self._costs) < KNOWN:
            return inf
        owed = self._owed(self._watched + (1 - RESERVE) * self.length, self.step_ns) - self._steps
        return max(owed, self.length + MIN_REST)

    def _owed(self, watched: int, step: float) -> float:
        """Steps in all of which so many watched ones are the share."""
        return max(LEAST, median(self._costs)) * watched / (share(step) * max(1.0, step))


MANY = 4096
"""Times of a rest that are enough to know a step's length."""
GAP_STEPS, GAP_NS = 20, 50_000_000
"""Something else happened where a step takes so many usual ones and so much time more: an evaluation, a checkpoint."""


class Pulse:
    """The steps of one rest, by the times at which they ended. `left`: steps until `beat` next asks what is due."""

    def __init__(self, begun: int, left: int, step_ns: float) -> None:
        self.begun, self.left = begun, left
        self.times = array("q")  # one rest may last for hours
        self._told, self.told_ns = 0, begun
        self._longest = int(GAP_STEPS * step_ns) + GAP_NS

    @property
    def walls(self) -> list[int]:
        """ns of its steps, the last ones of very many."""
        return [end - start for start, end in pairwise((array("q", [self.begun]) + self.times)[-MANY:])]

    def untold(self) -> Sequence[int]:
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
        hooks.begun, hooks.silenced = self._iterator, self.silenced
        self.asked: Callable[[], bool] = bool
        """Whether somebody asks for a look, so that a rest ends."""

    @property
    def num(self) -> int:
        """How many there were."""
        return sum(pacing.rests for pacing in self._paces.values())

    @property
    def enough(self) -> bool:
        """Whether there were as many as one run may have."""
        return self.num >= MOST

    def step(self, loop: Key, now: int, made: int, left: int | None = None) -> None:
        """A watched step of a loop has ended, its `made`-th, in the hook that noted it; its windows are done, or are to
        come `left` steps later at the earliest."""
        if loop[0] not in (UPDATES, EXPLICIT) or self.enough:
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
                if self._recorder.ranked:
                    steps += -(made + steps) % CYCLE
                last = left is not None and self.num >= MOST_BEFORE
                if (steps := steps if left is None else left if last else min(steps, left)) >= MIN_REST:
                    self._begin(loop, now, steps, pacing.step_ns or now - self._last, last)
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

    def _begin(self, loop: Key, now: int, steps: int, step_ns: float, last: bool) -> None:
        self._reading(ev.LEAVING)
        self._planned, self._earliest = steps, inf if last else self._paces[loop].earliest()
        self._pulse = pulse = Pulse(now, SETTLED, step_ns)
        anchor = self._recorder.optimizers.refs[self._recorder.anchor] if loop[0] == UPDATES else _mark
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
        if left <= 0 or self.asked() or (gap and len(pulse.times) >= self._earliest):
            self.end()
        elif pulse.left:  # a gap that came before the next stretch was earned: on a busy machine they are many
            return
        elif ev.RESTING not in self._read:
            self._reading(ev.RESTING)
            pulse.left = min(left, self._steps)
        else:
            if ev.RESTED not in self._read:
                self._reading(ev.RESTED)
            if pulse.times[-1] - pulse.told_ns >= TELL_NS // 2:  # else steps became shorter: asked no more often
                self._recorder.counted(self._loop, pulse.untold())
                self._recorder.flush()
            pulse.left = min(left, pulse.steps_in(TELL_NS))

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

    def silenced(self) -> None:
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
