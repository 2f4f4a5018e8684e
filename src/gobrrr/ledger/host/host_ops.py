"""The main thread's torch ops inside the profiled steps: their nesting, self time, phase and place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.collective_waits import with_waits
from gobrrr.ledger.host.places import Place, Places
from gobrrr.ledger.model.ledger import PHASES
from gobrrr.ledger.steps.other_loops import entries
from gobrrr.ledger.steps.step_windows import after_watching, step_spans, usual
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.call_tree import nest
from gobrrr.recording.model.trace import CPU_OP, USER_ANNOTATION, Kernels, Ops, Runtime, Trace, launch_rows
from gobrrr.recording.run_folder.run import Recording, Window
from gobrrr.recording.trace_files.categories import OF_THREADS
from gobrrr.spans import NONE, Flags, Ints, among, within
from gobrrr.words import LOADER, OPTIMIZER, UPDATE

_BACKWARD = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class HostOps:
    """Rows are ops and annotations of one thread, sorted by start. `own` is self time in ns; `place` at the start."""

    ops: Ops
    names: tuple[str, ...]
    parent: npt.NDArray[np.int32]
    own: Ints
    leaf: Flags
    is_op: Flags
    phase: tuple[str, ...]
    place: npt.NDArray[np.int32]
    spans: Ints
    """(n, 2) begin and end of the profiled steps, on the trace's clock."""
    updates: Ints = field(default_factory=lambda: NONE)
    """(n, 2) begin and end of the optimizers' annotations, the outermost ones."""
    closures: Ints = field(default_factory=lambda: NONE)
    """(n, 2) of the evaluations of closures within those."""
    ran: Ints = field(default_factory=lambda: NONE)
    """(n, 2) when the host did the steps: as `spans`, of a file's first step from where the host began it."""
    drained: bool = False
    """The device had nothing to do when the first step began and was waited for after the last: a run watched here."""

    def __len__(self) -> int:
        return len(self.ops)

    def name(self, row: int) -> str:
        """The op's name."""
        return self.names[int(self.ops.name[row])]

    @property
    def num_steps(self) -> int:
        """Steps that the rows belong to."""
        return len(self.spans)

    def idling(self, idle: Ints) -> HostOps:
        """The same with self times that count only while the device idles: what the host does while it works is free.
        `idle`: ns of that in each row, its children's included."""
        own = idle.copy()
        inner = self.parent >= 0
        np.subtract.at(own, self.parent[inner], idle[inner])
        return replace(self, own=np.maximum(own, 0))

    def launched(self, kernels: Kernels, runtime: Runtime) -> Kernels:
        """The device's work that is the steps': what ran in them, or where the device was waited for before and after
        what they launched, which may run long after the host has left them."""
        if not self.drained:
            return kernels.take((kernels.start >= self.spans[0, 0]) & (kernels.start < self.end))
        row = launch_rows(kernels, runtime)
        began = np.where(row >= 0, runtime.start[row], kernels.start) if len(runtime) else kernels.start
        return kernels.take((began >= self.spans[0, 0]) & (began < self.end))

    @cached_property
    def phases(self) -> Ints:
        """The phase of each row as its place in PHASES."""
        known = {phase: number for number, phase in enumerate(PHASES)}
        return np.fromiter(map(known.__getitem__, self.phase), np.int64, len(self))

    @property
    def waits_for_data(self) -> Flags:
        """Mark rows that are the loop's waits for a batch."""
        return self.begin_with(LOADER)

    @property
    def waits_for_ranks(self) -> Flags:
        """Mark rows that are waits for a collective that a thread of its own carries (collective_waits.with_waits)."""
        found: Flags = self.is_op & self.begin_with(OF_THREADS)
        return found

    def begin_with(self, prefix: str | tuple[str, ...]) -> Flags:
        """Mark ops whose names begin with `prefix`; each name is looked at once."""
        return np.array([name.startswith(prefix) for name in self.names], bool)[self.ops.name]

    @property
    def begin(self) -> int:
        """When the host began with the first of them: before its span, where the device had older work to do first."""
        return int(min(self.spans[0, 0], self.ops.start.min(initial=self.spans[0, 0])))

    @property
    def end(self) -> int:
        """When the last of them ended."""
        return int(self.spans[-1, 1])


def host_ops(recording: Recording, window: Window, trace: Trace, places: Places) -> HostOps:
    """The ops of the window's steps on the thread that makes them; what ran between them for another loop is not in."""
    steps = step_spans(recording, window)
    spans = (steps if len(trace.kernels) else usual(steps, recording)) + window.offset
    ops = trace.ops
    begins = recording.offline and spans[0, 0] == steps[0, 0] + window.offset
    ran = _of_the_host(spans, window) if begins else spans
    inside = within(ops.start, ran) & ((ops.kind == CPU_OP) | (ops.kind == USER_ANNOTATION))
    main = _main_thread(recording, trace, inside)
    ops = ops.take(inside & ((ops.thread == main) | (ops.thread == _backward_thread(ops, main))))
    if places.known and not recording.offline:
        ran = spans = after_watching(spans, ops.start, places.times)
    ops, names = with_open_updates(recording, window, ops, trace.names, spans)
    ops = with_waits(ops, trace, places.times)
    tree = nest(ops.start, ops.dur)
    leaf = np.ones(len(ops), bool)
    leaf[tree.parent[tree.parent >= 0]] = False
    place = places.at(ops.start)
    here = [places.places[p] for p in place]
    phases = _phases([names[n] for n in ops.name.tolist()], tree.parent.tolist(), here, ops.is_backward.tolist())
    if not places.known or (recording.offline and not any(p.module or p.backward for p in places.places)):
        phases = _guessed(phases, _leads_back(ops))
    is_op, drained = ops.kind == CPU_OP, not recording.offline
    host = HostOps(ops, names, tree.parent, tree.self_time, leaf, is_op, phases, place, spans, ran=ran, drained=drained)
    updates, starts = _updates(host), ops.start.tolist()
    host = replace(host, updates=updates, closures=evaluations(updates, starts, (ops.start + ops.dur).tolist(), phases))
    return replace(host, phase=_outside_closures(host))


def _of_the_host(spans: Ints, window: Window) -> Ints:
    """A file's first step from where the host began it: it runs ahead of the device, whose own begin is the span's."""
    found = spans.copy()
    found[0, 0] = min(int(found[0, 0]), window.began + window.offset)
    return found


def _updates(host: HostOps) -> Ints:
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero(~host.is_op).tolist():
        start, dur = int(host.ops.start[row]), int(host.ops.dur[row])
        if host.name(row).startswith(OPTIMIZER) and (not found or start >= found[-1][1]):
            found.append((start, start + dur))
    return np.array(found, np.int64).reshape(-1, 2)


def _outside_closures(host: HostOps) -> tuple[str, ...]:
    """The phases, where an op of a closure is no update: it leads to the loss."""
    inside = within(host.ops.start, host.closures) & host.is_op
    return tuple(
        "loss" if closed and phase == "optimizer" and not _of_optimizer(host, row) else phase
        for row, (phase, closed) in enumerate(zip(host.phase, inside.tolist(), strict=True))
    )


def _of_optimizer(host: HostOps, row: int) -> bool:
    """Its innermost annotation is of zero_grad, which a closure calls as well."""
    while (row := int(host.parent[row])) >= 0:
        if not host.is_op[row] and host.name(row).startswith(OPTIMIZER):
            return "zero_grad" in host.name(row)
    return False


def _main_thread(recording: Recording, trace: Trace, inside: Flags) -> int:
    """The thread whose tid is the process's pid (Linux: the main thread); else the one with most op time."""
    for index, thread in enumerate(trace.threads):
        if str(thread.tid) == str(recording.start.pid) and np.any(trace.ops.thread[inside] == index):
            return index
    if not np.any(inside):
        return 0
    return int(np.argmax(np.bincount(trace.ops.thread[inside], weights=trace.ops.dur[inside].astype(float))))


def _backward_thread(ops: Ops, main: int) -> int:
    """The thread on which autograd runs backward for a device while the main thread waits; -1 where it is the main one.
    Of several devices' threads, which overlap, the busiest."""
    elsewhere = ops.is_backward & (ops.thread != main)
    if not np.any(elsewhere):
        return -1
    return int(np.bincount(ops.thread[elsewhere], weights=ops.dur[elsewhere].astype(float)).argmax())


def _phases(names: list[str], parents: list[int], places: list[Place], node: list[bool]) -> tuple[str, ...]:
    """data and optimizer by torch's own annotations, backward and forward by the line log; the loss lies between.

    A closure runs forward and backward inside Optimizer.step: the more specific phase counts.
    """
    found: list[str] = []
    forward_seen = False
    told = {name: _told(name) for name in set(names)}
    for name, parent, here, is_backward in zip(names, parents, places, node, strict=True):
        above = found[parent] if parent >= 0 else ""
        says = told[name]
        if above == "data" or says == "data":
            phase = "data"
        elif above == "backward" or here.backward or is_backward or says == "backward":
            phase, forward_seen = "backward", False
        elif says == "optimizer":
            phase = "optimizer"
        elif above == "forward" or here.module:
            phase, forward_seen = "forward", True
        elif above == "optimizer":
            phase = above
        else:
            phase = "loss" if forward_seen else "other"
        found.append(phase)
    if "backward" not in found:  # inference: what follows the forward is no loss
        return tuple("other" if phase == "loss" else phase for phase in found)
    return tuple(found)


def _told(name: str) -> str:
    """The phase that a name alone tells; empty where it tells none."""
    if name.startswith(LOADER):
        return "data"
    return "backward" if name.startswith(_BACKWARD) else "optimizer" if name.startswith(OPTIMIZER) else ""


def _leads_back(ops: Ops) -> Flags:
    """Mark ops whose node of the graph a backward op works at: autograd gives both its number."""
    known = ops.sequence >= 0
    return known & ~ops.is_backward & among(ops.sequence, ops.sequence[known & ops.is_backward])


def _guessed(phases: tuple[str, ...], leads_back: Flags) -> tuple[str, ...]:
    """Without a line log only data, backward and optimizer are known: what comes before a backward is forward; after it
    what follows the first op that leads to another one."""
    found, before = [], "forward"
    for phase, leads in zip(phases, leads_back.tolist(), strict=True):
        if leads and phase == "other":
            before = "forward"
        if phase in ("backward", "optimizer", "data"):
            before = "other" if phase == "backward" else "forward"
        found.append(before if phase in ("other", "loss") else phase)
    return tuple(found)


# Closures inside an optimizer's step: LBFGS evaluates one again and again, Lightning trains inside one. A step that
# runs no backward runs no closure. In one that does, an evaluation begins where the step does or with its forward, and
# ends with its backward; what lies between evaluations and after the last one is the optimizer's own.


def evaluations(updates: Ints, starts: list[int], ends: list[int], phases: tuple[str, ...]) -> Ints:
    """(n, 2): begin and end of every evaluation of a closure within the `updates` ((n, 2), disjoint and sorted).

    `starts`, `ends` and `phases` are of the ops, sorted by start.
    """
    found: list[tuple[int, int]] = []
    begins = np.array(starts, np.int64)
    for begin, end in updates.tolist():
        first, last = np.searchsorted(begins, (begin, end))
        found += _within(begin, starts[first:last], ends[first:last], phases[first:last])
    return np.array(found, np.int64).reshape(-1, 2)


def _within(begin: int, starts: list[int], ends: list[int], phases: tuple[str, ...]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    opened, closed = begin, 0
    for start, end, phase in zip(starts, ends, phases, strict=True):
        if phase == "forward" and closed:
            found.append((opened, closed))
            opened, closed = start, 0
        if phase == "backward":
            closed = max(closed, end)
    return [*found, (opened, closed)] if closed else found


def with_open_updates(
    recording: Recording, window: Window, ops: Ops, names: tuple[str, ...], spans: Ints
) -> tuple[Ops, tuple[str, ...]]:
    """`ops`, those within `spans`, with an annotation for every update that the journal has there and the trace has
    not, named as torch would name it: the one that the window ends in, which torch drops when the profiler stops."""
    events = recording.events
    begun = events[(events[:, 1] == event_kinds.UPDATE_BEGIN) & within(events[:, 0] + window.offset, spans)]
    for begin, _, number, _ in begun.tolist():
        if len(ops) and not _annotated(ops, names, begin + window.offset):
            end = _end(recording, window, begin, number)
            names = names if (name := _name(recording, number)) in names else (*names, name)
            ops = ops.with_rows([names.index(name)], [begin + window.offset], [end - begin], USER_ANNOTATION)
    return ops, names


def _annotated(ops: Ops, names: tuple[str, ...], time: int) -> bool:
    around = (ops.kind == USER_ANNOTATION) & (ops.start <= time) & (ops.start + ops.dur >= time)
    return any(names[number].startswith(UPDATE) for number in np.unique(ops.name[around]).tolist())


def _end(recording: Recording, window: Window, begin: int, number: int) -> int:
    """When the update ended: a journal cut short has no end for its last one, the window's stands for it."""
    events = recording.events
    ends = events[(events[:, 1] == event_kinds.UPDATE_END) & (events[:, 2] == number) & (events[:, 0] >= begin), 0]
    return min(int(ends[0]), window.ended) if len(ends) else window.ended


def _name(recording: Recording, number: int) -> str:
    kinds = (entry["kind"] for entry in entries(recording, "optimizers", number) if entry.get("kind"))
    return f"{UPDATE}{next(kinds, 'Optimizer')}.step"
