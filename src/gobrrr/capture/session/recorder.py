"""The one object behind all hooks: it notes events, finds step boundaries and tells the windows when to open."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from time import perf_counter_ns, thread_time_ns
from types import FrameType
from typing import Any

from gobrrr.capture.facts.lengths import Lengths
from gobrrr.capture.facts.worker_copies import WorkerCopies
from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.module_parts import Targets
from gobrrr.capture.hooks.transform_guard import in_backward, unseen
from gobrrr.capture.session.journal import JournalWriter
from gobrrr.capture.source.user_code import user_lines
from gobrrr.capture.steps import ranks
from gobrrr.capture.steps.device_memory import Device
from gobrrr.capture.steps.loops import Loops
from gobrrr.capture.steps.random_numbers import Draws
from gobrrr.capture.steps.vitals import Collections, Waited, vitals
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.event_kinds import UPDATES

FLUSH_NS = 50_000_000  # ns between writes; proposed: a kill loses little; their cost would settle it
FLUSH_EVENTS = 4 * 4096  # buffered values, 4 per event; proposed: bounds memory; write cost would settle it
VITALS_NS = 100_000_000  # ns between readings; proposed: seldom enough to be cheap; their cost would settle it
MAX_WHOLES = 64
"""Modules that are looked into: a program that makes a new one for every step is not to pay for it."""

PHASE_MARKS = frozenset(
    (ev.DATA_BEGIN, ev.DATA_END, ev.FORWARD, ev.BACKWARD, ev.UPDATE_BEGIN, ev.UPDATE_END, ev.COLLECTIVE)
)
"""Events behind which the thread's CPU time is noted in a job of several ranks: what a rank waits takes none."""
PATIENCE_THREADS = 64
"""Forwards of other threads since the last one of the watched, which did no more than warm up: a server works so."""


def _nobody() -> None:
    """Return None, as a reference does whose object has gone or cannot be held weakly."""


class Registry:
    """Numbers objects in the order they are met, holding them weakly; an address used again gets a new number."""

    def __init__(self) -> None:
        self.refs: list[Callable[[], Any]] = []
        self._numbers: dict[int, int] = {}

    def known(self, obj: Any) -> int | None:
        """The number of `obj`; None where it was not met before."""
        known = self._numbers.get(id(obj))
        return known if known is not None and self.refs[known]() is obj else None

    def number(self, obj: Any) -> int:
        """The number of `obj`, a new one where it was not met before."""
        known = self.known(obj)
        if known is not None:
            return known
        self.refs.append(_nobody)
        return self.succeeds(obj, len(self.refs) - 1)

    def succeeds(self, obj: Any, number: int) -> int:
        """`obj` has this number from now on."""
        self._numbers[id(obj)] = number
        with contextlib.suppress(TypeError):
            self.refs[number] = weakref.ref(obj)
        return number

    def alive(self) -> list[tuple[int, Any]]:
        """(number, object) of all that still live."""
        found = ((number, ref()) for number, ref in enumerate(self.refs))
        return [(number, obj) for number, obj in found if obj is not None]


def optimizer_made() -> bool:
    """Whether any optimizer of torch's or derived from one was ever made: torch marks its class's step when it is."""
    from torch.optim import Optimizer

    kinds: list[Any] = [Optimizer]
    for kind in kinds:
        if hasattr(kind.__dict__.get("step"), "hooked"):
            return True
        kinds += type.__subclasses__(kind)
    return False


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _forked() -> None:
    """A flag set once costs hooks less than asking the kernel who they are in every one."""
    for recorder in _recorders:
        recorder.thread = 0


os.register_at_fork(after_in_child=_forked)


class Recorder:
    """Collects events of the thread that made it. Its methods are called from hooks and must never raise into them."""

    def __init__(self, open_journal: Callable[[], JournalWriter], on_boundary: Callable[[int, int, int], None]) -> None:
        self.thread = threading.get_ident()
        """Hooks of other threads are not noted, nor any in a forked child, where this is 0."""
        self.pid = os.getpid()
        _recorders.add(self)
        self.loops = Loops(optimizer_made)
        self._parts: dict[int, set[int]] = {}  # of the first modules, by number, addresses of what lies inside
        self._once: dict[int, int] = {}  # by type, the one met last, which was called once so far
        self._trained = False  # whether the watched thread has
        self._patience = 0  # so many forwards of other threads until one of them is the one to watch
        self.is_looked_at = False
        """A window is open, with instruments on the watched thread."""
        self.modules, self.optimizers, self.loaders, self.graphs = Registry(), Registry(), Registry(), Registry()
        self._targets = Targets(self.modules.alive)
        self.loader_facts: dict[int, dict[str, Any]] = {}
        self.lengths, self.draws, self.copies = Lengths(), Draws(), WorkerCopies()
        self.batches = ranks.Batches()
        self.update_spans: dict[int, Any] = {}
        self._first: dict[int, int] = {}
        self._first_at: dict[Any, int] = {}
        self._first_graph: dict[int, int] = {}
        self._first_graph_at: dict[Any, int] = {}
        self._ended: Counter[int] = Counter()
        self._num_updates: Counter[int] = Counter()
        self._sizes_of: dict[int, int] = {}
        self._shapes: dict[tuple[tuple[int, ...], ...], int] = {}
        self.anchor = -1
        """The optimizer whose update ended a step last; its loop bears the number of the first one there."""
        self.forward_spans: dict[int, dict[str, Any] | None] = {}
        """User's line that makes the forwards of a loop without an update, by the number of its module."""
        self.collections = Collections()
        self._open_journal = open_journal
        self._journal: JournalWriter | None = None
        self._on_boundary = on_boundary
        self._buffer: list[int] = []
        self._stepped = False
        self._last_flush = self._last_vitals = perf_counter_ns()
        self._lock = threading.Lock()
        self._waited, self._device = Waited(), Device()
        self.ranked = False
        """It is one of several ranks."""

    @property
    def journal(self) -> JournalWriter:
        """The journal, opened at the first event: a process that makes no step leaves no file."""
        if self._journal is None:
            self._journal = self._open_journal()
        return self._journal

    @property
    def started(self) -> bool:
        """Whether anything was written, or a step is to be."""
        return self._journal is not None or self._stepped

    def note(self, kind: int, number: int, value: int = 0) -> int:
        """Append one event of this moment; returns its time."""
        now = perf_counter_ns()
        self._buffer.extend((now, kind, number, value))
        if self.ranked and kind in PHASE_MARKS:
            self._buffer.extend((now, ev.THREAD, -1, thread_time_ns()))
        return now

    def update_end(self, number: int) -> None:
        """An optimizer has stepped."""
        self._trained = True
        now = self.note(ev.UPDATE_END, number, self._sizes(number))
        self._num_updates[number] += 1
        if in_backward():
            self.loops.updated_inside()
            self._boundary(None, now)
            return
        ended = self.loops.update(number)
        if ended is not None:
            self.anchor = number
            ended = (UPDATES, self._first_here(number))
        self._boundary(ended, now)

    def updates_of(self, parameters: set[int]) -> int:
        """How often the optimizers of any of these parameters (by id) have stepped, while the hooks were in."""
        return sum(
            self._num_updates[number]
            for number, optimizer in self.optimizers.alive()
            if any(id(p) in parameters for group in optimizer.param_groups for p in group["params"])
        )

    def _sizes(self, number: int) -> int:
        """Return the number of this optimizer's set of parameter shapes, among those met so far."""
        known = self._sizes_of.get(number)
        if known is None:
            shapes: tuple[tuple[int, ...], ...] = ()
            with unseen(), contextlib.suppress(Exception):  # an optimizer of the program's own may have others
                groups = self.optimizers.refs[number]().param_groups
                shapes = tuple(tuple(p.shape) for group in groups for p in group["params"])
            known = self._sizes_of[number] = self._shapes.setdefault(shapes, len(self._shapes))
        return known

    def _first_here(self, number: int) -> int:
        """The first optimizer that was stepped from the lines that step this one: folds, restarts and layers that are
        trained in turn make an optimizer each, and are one loop. One that has ended a single step takes turns with it.
        """
        first = self._first.get(number)
        if first is None:
            lines = tuple(user_lines(sys._getframe()))
            self.update_spans[number] = lines[0] if lines else None
            place = _place(lines) or number
            before = self._first_at.get(place, number)
            first = before if self._ended[before] > 1 else number
            self._first[number] = self._first_at[place] = first
        self._ended[first] += 1
        return first

    def backward(self, engine: FrameType) -> None:
        """A backward pass begins, in this frame of torch's."""
        self._trained = True
        to_inputs = not self.loops.optimizers and self._targets.are_inputs(engine, len(self.modules.refs))
        now = self.note(ev.BACKWARD, -1, to_inputs)
        self._boundary(self.loops.backward(), now)

    def wait(self, number: int) -> None:
        """A batch is asked for."""
        now = self.note(ev.DATA_BEGIN, number)
        self._boundary(self.loops.wait(), now)

    def module(self, module: Any) -> int:
        """The number of a module that is called at top level."""
        number, kind = self.modules.known(module), id(type(module))
        if number is None:
            number = self._once[kind] = self._met_first(module, self._once.get(kind))
        elif self._once.get(kind) == number:
            del self._once[kind]
        return number

    def _met_first(self, module: Any, before: int | None) -> int:
        """Return a module's number. One that is made for every call (`nn.Softmax(dim=1)(x)`) gets that of the one of
        its type `before` it, which was called once and has gone."""
        if before is not None and self.modules.refs[before]() is None:
            self._parts.get(before, set()).clear()
            return self.modules.succeeds(module, before)
        number = self.modules.number(module)
        if module_parts.is_bare(module):
            self.loops.bare(number)
        if len(self._parts) < MAX_WHOLES:
            self._nested(module, number)
        return number

    def forward(self, number: int, flags: int) -> None:
        """A top-level forward begins."""
        self._patience = PATIENCE_THREADS
        now = self.note(ev.FORWARD, number, flags)
        self._boundary(self.loops.forward(number, flags), now)

    def replay(self, graph: Any) -> None:
        """A CUDA graph is replayed by the program itself, not by a module of its."""
        self._patience = PATIENCE_THREADS
        number = self.graphs.number(graph)
        self._boundary(self.loops.replay(self._first_replayed(number), number), perf_counter_ns())

    def _first_replayed(self, number: int) -> int:
        """The first graph that was replayed from the lines that replay this one: those of a model's layers, one for
        each shape of the input, and one that is captured anew, are one loop."""
        first = self._first_graph.get(number)
        if first is None:
            place = _place(user_lines(sys._getframe())) or number
            first = self._first_graph[number] = self._first_graph_at.setdefault(place, number)
        return first

    def _nested(self, module: Any, number: int) -> None:
        """Tell the loops which of the modules met so far this one lies in, and which lie in it."""
        own = self._parts[number] = {id(part) for _, part in module_parts.modules(module)}
        for other, whole in self.modules.alive():
            inside, around = id(module) in self._parts.get(other, ()), id(whole) in own
            if inside and not around:
                self.loops.belongs(number, other)
            if around and not inside:
                self.loops.belongs(other, number)

    def batch(self, number: int, frame: FrameType | None = None) -> None:
        """A loader hands out a batch, in this frame of torch's."""
        now = self.note(ev.DATA_END, number)
        self._boundary(self.loops.batch(number), now)
        facts = self.loader_facts.get(number, {})
        key = tuple(facts.get("key", ()))
        self.draws.end(key)
        self.batches.look(frame)
        if frame is not None:
            self.lengths.look(key, frame, perf_counter_ns())
            self.copies.look(key, facts, frame)

    def explicit(self) -> None:
        """The program itself marks a step."""
        now = self.note(ev.STEP, 0)
        self._boundary(self.loops.explicit(), now)

    def adopts(self, trains: bool | None) -> bool:
        """Another thread than the watched one makes part of a step, of a training or not, or something else (None). A
        program may work in a thread of its own: it is the one to watch where the one before it has made nothing so far,
        or has ended; where it trains and that one did not; or where that one makes nothing any more. Never in a forked
        child."""
        if trains is None or not self.thread:
            return False
        gives_way = not (self.is_looked_at or self._trained)
        if gives_way:
            self._patience -= 1
            gives_way = trains or self._patience < 0
        if not gives_way and any(thread.ident == self.thread for thread in threading.enumerate()):
            return False
        self.thread, self._trained = threading.get_ident(), False
        return True

    def rests(self, loop: tuple[int, int]) -> None:
        """From here on nothing is noted but the steps of this loop."""
        self.note(ev.REST_BEGIN, loop[1], loop[0])
        self.flush()

    def rested(self, loop: tuple[int, int], num: int, times: Sequence[int]) -> None:
        """A rest is over, in which so many steps were counted, the last of them at `times`."""
        self.counted(loop, times)
        self.note(ev.REST_END, loop[1], num)

    def counted(self, loop: tuple[int, int], times: Sequence[int]) -> None:
        """Steps of a rest that ended at `times`."""
        kind, number = loop
        rows = zip(times, repeat(ev.BOUNDARY), repeat(number), repeat(kind), strict=False)
        self._buffer.extend(chain.from_iterable(rows))

    def spent(self, moment: int) -> int:
        """Note this thread's CPU time; returns it, in ns."""
        cpu = thread_time_ns()
        self.note(ev.SPENT, moment, cpu)
        return cpu

    def _boundary(self, loop: tuple[int, int] | None, now: int) -> None:
        if self.collections.pending():
            for ended, duration, by_hand in self.collections.drain():
                if self.started:  # those of the imports, before the first step, say nothing
                    self._buffer.extend((ended, ev.GC, int(by_hand), duration))
        if loop is not None:
            kind, number = loop
            self._stepped = True
            self._buffer.extend((now, ev.BOUNDARY, number, kind))
            self.ranked = ranks.among_others()
            self._on_boundary(kind, number, now)
        if now - self._last_vitals > VITALS_NS:
            self._last_vitals = now
            for mark, value in (*vitals(), *self._waited.marks(now), *self._device.marks(now)):
                self._buffer.extend((now, mark, 0, value))
        if now - self._last_flush > FLUSH_NS or len(self._buffer) > FLUSH_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Hand the buffered events to the kernel: from then on a kill cannot lose them."""
        if not self._lock.acquire(blocking=False):
            return  # a signal handler of the program that trains, called while this thread was flushing
        try:
            if self._buffer and os.getpid() == self.pid:
                full, self._buffer = array("q", self._buffer), []
                self.journal.events(full)
                self._last_flush = perf_counter_ns()
        finally:
            self._lock.release()


def _place(lines: Iterable[dict[str, Any]]) -> tuple[tuple[str, int], ...]:
    """Where the program stands, to be held against where it stood: files and lines, the innermost first."""
    return tuple((line["file"], line["line"]) for line in lines)
