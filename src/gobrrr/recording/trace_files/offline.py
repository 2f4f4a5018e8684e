"""A trace that another program left, in the shape of a live recording: its steps, waits for data and Python lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gobrrr.errors import TraceError
from gobrrr.recording.model.event_kinds import EXPLICIT, FORWARDS, UPDATES
from gobrrr.recording.model.serving import Iteration, iterations
from gobrrr.recording.model.steps import LoopSteps, Step
from gobrrr.recording.model.trace import CPU_OP, USER_ANNOTATION, Trace, lanes, launch_rows
from gobrrr.recording.run_folder.run import Recording, Start, Window
from gobrrr.recording.trace_files.stack_lines import line_log
from gobrrr.spans import NONE, Ints, among, overlap, total
from gobrrr.units import share
from gobrrr.words import LOADER, UPDATE

SINGLE = "_SingleProcessDataLoaderIter"
PLACE = (0, 0)
"""A trace's clock is its own: nothing is to be added."""
RARELY = 5.0
"""Times the mean of the other gaps between marked steps, and the median step, from which a gap is none of the loop's
(proposed; a loader of two workers leaves none and 2.2 times the mean by turns)."""
DAMAGED = 0.01
"""Share of events without a name, a start or a length from which it is told (proposed): in 18 real traces none."""
HARMLESS = ("category not known", "phase not known")
"""Events of another profiler's, which say nothing that is read."""


class Part(NamedTuple):
    """A part of a file: steps from one number to another, both in it, and seconds since its first event."""

    steps: tuple[int, int] = (0, 1 << 62)
    seconds: tuple[float, float] = (0.0, math.inf)

    def within(self, span: Ints, began: int) -> Ints:
        """The stretch of a file without marks that is in it."""
        begin, until = (min(began + seconds * 1e9, 2.0**62) for seconds in self.seconds)
        first, last = max(int(begin), int(span[0, 0])), min(int(until), int(span[0, 1]))
        if self.steps != WHOLE.steps or first >= last:
            what = "the file does not say where a step ends" if first < last else "nothing lies in that part"
            raise TraceError(what, f"it has {(span[0, 1] - began) / 1e9:.3g} s: --from and --until choose of them")
        return np.array([[first, last]], np.int64)

    def of(self, spans: Ints, numbers: Ints, began: int, marked: bool) -> npt.NDArray[np.bool_]:
        """Mark the steps that are in it. Raises TraceError where none is."""
        first, last = self.steps
        begin, until = (began + seconds * 1e9 for seconds in self.seconds)
        found: npt.NDArray[np.bool_] = (numbers >= first) & (numbers <= last) if marked else np.ones(len(spans), bool)
        found &= (spans[:, 0] >= begin) & (spans[:, 1] <= until)
        if not found.any() and self != WHOLE:
            there = f"steps {numbers[0]} to {numbers[-1]}" if marked else "no marked step"
            length = (spans[-1, 1] - began) / 1e9 if len(spans) else 0.0
            raise TraceError(f"no whole step lies in that part: the file has {there} in {length:.3g} s", "name another")
        return found


WHOLE = Part()


def of_trace(trace: Trace, part: Part = WHOLE) -> Recording:
    """The recording of one file, or of a part. Every step of it ran under the profiler; it has no facts but those that
    names tell. Raises TraceError where no step lies in the part."""
    thread = _thread(trace)
    iterations, engine = _serving(trace, thread) if not len(trace.steps) else ((), NONE)
    marked, outside, numbers = (engine, 0, None) if iterations else _marked(trace, thread)
    spans = marked if len(marked) else _whole(trace, thread)
    if len(spans):
        numbers = np.arange(1, len(spans) + 1) if numbers is None else numbers
        spans = spans if len(marked) else part.within(spans, _begin(trace))
        chosen = part.of(spans, numbers, _begin(trace), len(marked) > 0)
        spans, outside = spans[chosen], outside * int(chosen.sum()) // len(chosen)
        iterations = tuple(each for each, is_in in zip(iterations, chosen.tolist(), strict=False) if is_in)
    began = int(spans[0, 0]) if len(spans) else 0
    if len(spans):
        spans = _with_device_work(trace, spans)
    waits = _waits(trace, thread)
    training = len(_annotations(trace, thread, UPDATE)) > 0
    waited = overlap(spans, waits).tolist()
    steps = tuple(Step(a, b, 0, wait=wait) for (a, b), wait in zip(spans.tolist(), waited, strict=True))
    loop = LoopSteps(FORWARDS if iterations else UPDATES if training else EXPLICIT, 0, steps)
    ended = int(spans[-1, 1]) if len(spans) else 0
    log = line_log(trace, thread)
    window = Window("profile", (loop.kind, 0), len(steps), began, ended, PLACE, trace=trace.source, lines=log)
    return Recording(
        Path(trace.source), _start(trace, thread), np.zeros((0, 4), np.int64), (loop,) if steps else (),
        (window,) if steps else (), trace, (), _facts(trace, waits), {}, "file", 0,
        tuple(note for note in (trace.note, _damaged(trace, len(spans))) if note), offline=True,
        unmarked=len(spans) > 0 and not len(marked), serving=iterations, outside_ns=outside / max(1, len(spans)),
    )  # fmt: skip


def _start(trace: Trace, thread: int) -> Start:
    devices = trace.properties.devices
    name = str(devices[0].get("name") or "") if devices else ""
    tid = trace.threads[thread].tid if thread < len(trace.threads) else 0
    return Start(
        pid=tid if isinstance(tid, int) else 0, rank=trace.properties.rank, world_size=trace.properties.world_size,
        device=name or None,
    )  # fmt: skip


def _thread(trace: Trace) -> int:
    """The thread that makes the steps: of the profiler's or the optimizer's marks, else the one with most op time."""
    if len(trace.steps):
        return int(np.bincount(trace.steps.thread).argmax())
    marks = [i for i, name in enumerate(trace.names) if name.startswith((UPDATE, LOADER))]
    named = np.isin(trace.ops.name, [*marks, *iterations(trace.names)])
    rows = trace.ops.thread[named & (trace.ops.kind == USER_ANNOTATION)]
    if len(rows):
        return int(np.bincount(rows).argmax())
    ops = trace.ops.kind == CPU_OP
    if not np.any(ops):
        return 0
    return int(np.bincount(trace.ops.thread[ops], weights=trace.ops.dur[ops].astype(float)).argmax())


def _annotations(trace: Trace, thread: int, prefix: str) -> Ints:
    """(n, 2) begin and end of a thread's outermost annotations whose names begin so."""
    named = np.isin(trace.ops.name, [i for i, name in enumerate(trace.names) if name.startswith(prefix)])
    rows = trace.ops.take(named & (trace.ops.thread == thread))
    found: list[tuple[int, int]] = []
    for start, dur in zip(rows.start.tolist(), rows.dur.tolist(), strict=True):
        if not found or start >= found[-1][1]:
            found.append((start, start + dur))
    return np.array(found, np.int64).reshape(-1, 2)


def _marked(trace: Trace, thread: int) -> tuple[Ints, int, Ints | None]:
    """(n, 2): the profiler's own steps, each once; else from the end of one update to the end of the next. Then how
    many ns of all lie outside of the ranges that mark them, and their numbers, where they have some."""
    marks = trace.steps.take(trace.steps.thread == thread) if len(trace.steps) else trace.steps
    if len(marks):
        ends = marks.start + marks.dur
        first = np.concatenate(([True], ends[1:] > np.maximum.accumulate(ends)[:-1]))  # else within one before
        spans = np.stack((marks.start, ends), axis=1)[first]
        found = _begin_to_begin(spans, marks.number[first])
        return found, total(found) - total(spans), marks.number[first]
    ends = _annotations(trace, thread, UPDATE)[:, 1]
    return (np.stack((ends[:-1], ends[1:]), axis=1) if len(ends) > 2 else NONE), 0, None


def _begin(trace: Trace) -> int:
    starts = [int(table.start.min()) for table in (trace.ops, trace.runtime, trace.kernels) if len(table)]
    return min(starts, default=0)


def _begin_to_begin(spans: Ints, number: Ints) -> Ints:
    """Steps that each last until the next one begins, where they are numbered one by one: a range around the loop's
    body leaves out what the loop itself does, the next batch say. Not where it is much longer than usual: there an
    epoch ended, or nobody asked for anything."""
    between = spans[1:, 0] - spans[:-1, 1]
    own = (np.diff(number) == 1) & (between > 0)
    rest = np.maximum((between[own].sum() - between) / max(1, own.sum() - 1), np.median(spans[:, 1] - spans[:, 0]))
    own &= between <= RARELY * rest
    found = spans.copy()
    found[:-1, 1][own] = spans[1:, 0][own]
    return found


def _serving(trace: Trace, thread: int) -> tuple[tuple[Iteration, ...], Ints]:
    """Return a serving engine's work in each of its steps, and (n, 2): from the begin of one to that of the next, or to
    its own end where the next comes much later: nobody asked for anything. Marks inside of marks are details."""
    said = iterations(trace.names)
    rows = trace.ops.take(np.isin(trace.ops.name, list(said)) & (trace.ops.thread == thread))
    rows = rows.take(rows.kind == USER_ANNOTATION)
    rows = rows.take(rows.start >= np.append(-(2**62), np.maximum.accumulate(rows.start + rows.dur)[:-1])[: len(rows)])
    if not len(rows):
        return (), NONE
    own = rows.start + rows.dur
    until = np.append(rows.start[1:], own[-1])
    spans = np.stack((rows.start, np.where(until - own <= np.median(rows.dur), until, own)), axis=1)
    kept = spans[:, 1] > spans[:, 0]
    return tuple(said[name] for name in rows.name[kept].tolist()), spans[kept]


def _whole(trace: Trace, thread: int) -> Ints:
    """(1, 2): all of the file, where nothing in it says where a step ends; calls of the runtime alone before the first
    launch and after the last kernel make and take down what no step does again."""
    ops, calls = trace.ops.take(trace.ops.thread == thread), trace.runtime
    launched = calls.take(among(calls.correlation, trace.kernels.correlation)) if len(trace.kernels) else calls
    tables = [table for table in (ops, launched, trace.kernels) if len(table)] or [calls]
    if not len(tables[0]):
        return NONE
    begin = min(int(table.start.min()) for table in tables)
    return np.array([[begin, max(int((table.start + table.dur).max()) for table in tables)]], np.int64)


def _damaged(trace: Trace, num_steps: int) -> str:
    """How many events could not be read, and why; that they are damaged where there may be one in each step, or more
    than a few: the few may be most of what the device did."""
    bad = {reason: count for reason, count in trace.skipped.items() if reason not in HARMLESS}
    number = sum(bad.values())
    there = sum(len(table) for table in (trace.ops, trace.kernels, trace.runtime))
    if not number:
        return ""
    worst = max(bad, key=lambda reason: bad[reason])
    why = f"({worst}: {bad[worst]:,})"
    if number < DAMAGED * (number + there) and number < num_steps:
        return f"{number:,} of {number + there:,} events left out {why}"
    return f"{share(number / (number + there))} of the events are damaged {why} and left out"


def _with_device_work(trace: Trace, spans: Ints) -> Ints:
    """Steps that end with the device's work that they launched, and begin where the one before ends; the first where
    the device has done what was queued before. As they are marked where that leaves nothing of one: what it launched
    went on beside the next ones."""
    rows = launch_rows(trace.kernels, trace.runtime)
    linked = rows >= 0
    backlog = _backlog_end(trace, rows, int(spans[0, 0]))
    launched = trace.runtime.start[rows[linked]]
    ends = (trace.kernels.start + trace.kernels.dur)[linked]
    step = np.searchsorted(spans[:, 0], launched, "right") - 1
    inside = (step >= 0) & (launched < spans[np.maximum(step, 0), 1])
    found = spans.copy()
    np.maximum.at(found[:, 1], step[inside], ends[inside])
    found[1:, 0] = np.maximum(found[1:, 0], found[:-1, 1])
    if backlog < found[0, 1]:
        found[0, 0] = max(int(found[0, 0]), backlog)
    return found if (found[:, 1] > found[:, 0]).all() else spans


def _backlog_end(trace: Trace, rows: npt.NDArray[np.intp], begin: int) -> int:
    """When the device is done with what was launched before `begin`, or before the recording. A stream works in order:
    where one works before the first call was recorded, all until the first launch that was is older."""
    kernels, linked = trace.kernels, rows >= 0
    if not len(trace.runtime):
        return begin
    before = linked & (trace.runtime.start[rows] < begin)
    lane = lanes(kernels)
    queued = np.unique(lane[~linked & (kernels.start < trace.runtime.start[0])])
    first = np.full(int(lane.max(initial=-1)) + 1, -1, np.int64)
    first[lane[linked][::-1]] = kernels.start[linked][::-1]  # rows are sorted by start: the first is written last
    before |= ~linked & np.isin(lane, queued) & (kernels.start < first[lane])
    return int((kernels.start + kernels.dur)[before].max(initial=begin))


def _waits(trace: Trace, thread: int) -> Ints:
    return _annotations(trace, thread, LOADER)


def _facts(trace: Trace, waits: Ints) -> tuple[dict[str, Any], ...]:
    """The loader, by the names that torch gives its annotations; how many workers it has they do not say."""
    if not len(waits):
        return ()
    single = any(name.startswith(LOADER) and SINGLE in name for name in trace.names)
    loader = {"id": 0, "num_workers": 0 if single else 1}
    return ({"type": "facts", "moment": "end", "loaders": [loader], "settings": {}},)
