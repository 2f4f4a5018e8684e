"""A profiled window as events: steps, phases, lines, who is blamed while nothing runs, threads, streams, counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.ops.op_times import shapes_of
from gobrrr.ledger.steps.profiled_window import ProfiledWindow
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import COMMUNICATION, KERNEL, MEMCPY, MEMSET, Kernels, Ops, launch_rows
from gobrrr.recording.model.trace import lanes as streams
from gobrrr.report.timeline.slices import Track
from gobrrr.report.timeline.timeline import all_steps
from gobrrr.report.timeline.trace_events import Process, arguments, lanes
from gobrrr.rules.verdict.place import short

Rows = npt.NDArray[np.intp]
ARGS = 1 << 16
"""Texts of args that are kept to be written again: a hostile file has a new one for every event."""
OTHERS = {MEMCPY: "copy", MEMSET: "set"}


class WindowEvents:
    """Events of one window, for one process of the file."""

    def __init__(self, window: ProfiledWindow, process: Process, numbers: Iterator[int]) -> None:
        self.window, self.process = window, process
        self._names: dict[int, str] = {}
        self._args: dict[tuple[int, int, str], str] = {}
        self.stretch = all_steps(window)
        self._streams_of = [*_by_stream(window.trace.kernels)]
        self._arrow: dict[int, int] = {}
        self._launched: dict[int, list[int]] = defaultdict(list)
        self._link(numbers)

    def _link(self, numbers: Iterator[int]) -> None:
        """An arrow for each kernel that is drawn and whose launch is known, but where clocks let it begin before."""
        kernels, runtime = self.window.trace.kernels, self.window.trace.runtime
        launch = launch_rows(kernels, runtime)
        late = (launch >= 0) & (runtime.start[launch] <= kernels.start) if len(runtime) else launch >= 0
        for rows, lane in self._streams_of:
            known = late[rows].tolist()
            for row, place, link, fits in zip(rows.tolist(), lane, launch[rows].tolist(), known, strict=True):
                if fits and place >= 0:
                    self._arrow[row] = next(numbers)
                    self._launched[link].append(row)

    def __iter__(self) -> Iterator[str]:
        yield from self._steps()
        yield from self._pieces("phases", self.window.phases())
        yield from self._track("your lines", self.stretch.lines())
        yield from self._track(f"{self.stretch.idle_name}: who is blamed", self.stretch.idle_pieces())
        yield from self._threads()
        yield from self._streams()
        yield from self._counters()

    def _steps(self) -> Iterator[str]:
        number, median = len(self.window.spans), self.window.median
        named = [(a, b, f"step {i + 1} of {number}{', the median' if i == median else ''}")
                 for i, (a, b) in enumerate(self.window.spans.tolist())]  # fmt: skip
        return self._pieces("steps", named)

    def _pieces(self, track: str, pieces: Sequence[tuple[int, int, str]]) -> Iterator[str]:
        if not pieces:
            return
        tid, head = self.process.track(track)
        yield from head
        for begin, end, name in pieces:
            yield self.process.slice(tid, begin, end, self.process.text(name))

    def _track(self, name: str, track: Track) -> Iterator[str]:
        """A row of the page's timeline, every slice by itself."""
        if not len(track.start):
            return
        zero = self.stretch.begin
        tid, head = self.process.track(name)
        yield from head
        for row, (begin, end) in enumerate(zip(track.start.tolist(), track.end.tolist(), strict=True)):
            said = track.tell(row)
            line = line_of(said.where)
            args = arguments(self.process, line if said.name else line | {"line": ""})
            name = self.process.text(said.name or line.get("line", ""))
            yield self.process.slice(tid, zero + begin, zero + end, name, args)

    # what ran on the host

    def _threads(self) -> Iterator[str]:
        ops, calls = self.window.trace.ops, self.window.trace.runtime
        main = self.stretch.main_thread()
        busy = np.unique(np.concatenate((ops.thread, calls.thread))).tolist()
        for thread in sorted(busy, key=lambda each: (each != main, each)):
            yield from self._thread(thread, "main thread" if thread == main else "thread")

    def _thread(self, number: int, kind: str) -> Iterator[str]:
        trace, info = self.window.trace, self.window.trace.threads[number]
        own, called = np.flatnonzero(trace.ops.thread == number), np.flatnonzero(trace.runtime.thread == number)
        ops, calls = trace.ops.take(own), trace.runtime.take(called)
        start = np.concatenate((ops.start, calls.start))
        end = start + np.concatenate((ops.dur, calls.dur))
        order = np.lexsort((-end, start))
        begins, ends = start[order].tolist(), end[order].tolist()
        name = f"{kind} {info.tid}" + (f" {info.name}" if info.name and str(info.tid) not in info.name else "")
        tracks, head = self.process.tracks(name, lanes(begins, ends))
        yield from head
        place, module = self._origins(number, ops)
        names = np.concatenate((ops.name, calls.name)).tolist()
        signatures, numbers, count = ops.signature.tolist(), called.tolist(), len(ops)
        for row, begin, finish, tid in zip(order.tolist(), begins, ends, tracks, strict=True):
            if tid < 0:
                self._forget(numbers[row - count] if row >= count else -1)
            elif row < count:
                args = self._told(signatures[row], place[row], module[row])
                yield self.process.slice(tid, begin, finish, self._name(names[row]), args)
            else:
                yield self.process.slice(tid, begin, finish, self._name(names[row]))
                for kernel in self._launched.get(numbers[row - count], ()):
                    yield self.process.flow(self._arrow[kernel], tid, begin, begins=True)

    def _forget(self, call: int) -> None:
        """Drop the arrows of a call that no track has room for."""
        for kernel in self._launched.get(call, ()):
            self._arrow.pop(kernel, None)

    def _origins(self, thread: int, ops: Ops) -> tuple[list[int], list[str]]:
        """Return for each op of a thread its place and its module; 0 and '' where neither is known."""
        host = self.window.host
        mine = np.flatnonzero(host.ops.thread == thread)

        def keys(table: Ops) -> Iterator[tuple[int, int, int]]:
            return zip(table.start.tolist(), table.dur.tolist(), table.name.tolist(), strict=True)

        rows = dict(zip(keys(host.ops.take(mine)), mine.tolist(), strict=True))
        place, module = [0] * len(ops), [""] * len(ops)
        for at, key in enumerate(keys(ops)):
            row = rows.get(key)
            if row is not None:
                place[at], module[at] = int(self.window.origin[row]), self.window.module[row]
        return place, module

    def _told(self, signature: int, place_: int, module: str) -> str:
        key = (signature, place_, module)
        known = self._args.get(key)
        if known is None:
            where = self.window.places.places[place_].where
            line = line_of(where[0] if where else None)
            told = {"shapes": shapes_of(self.window.trace, signature), **line, "module": module}
            known = arguments(self.process, told)
            if len(self._args) < ARGS:
                self._args[key] = known
        return known

    # what ran on the device

    def _streams(self) -> Iterator[str]:
        trace = self.window.trace
        for rows, lane in self._streams_of:
            yield from self._stream(trace.kernels, "stream", rows, lane, self._arrow)
        for rows, lane in _by_stream(trace.device_annotations):
            yield from self._stream(trace.device_annotations, "annotations of stream", rows, lane, {})

    def _stream(
        self, table: Kernels, word: str, rows: Rows, lane: list[int], arrows: Mapping[int, int]
    ) -> Iterator[str]:
        first = int(rows[0])
        tracks, head = self.process.tracks(f"device {table.device[first]} {word} {table.stream[first]}", lane)
        yield from head
        columns = (column[rows].tolist() for column in (table.start, table.dur, table.name, table.kind, table.bytes))
        for row, tid, begin, dur, name, kind, moved in zip(rows.tolist(), tracks, *columns, strict=True):
            if tid < 0:
                continue
            yield self.process.slice(tid, begin, begin + dur, self._name(name), _kernel_args(kind, moved))
            if row in arrows:
                yield self.process.flow(arrows[row], tid, begin, begins=False)

    def _counters(self) -> Iterator[str]:
        times, queued = self.window.queue()
        name = "launched, not begun by the device"
        yield from self.process.counter(name, "launches", times.tolist(), queued.tolist())
        times, held, totals = self.window.memory()
        name = "device memory held by tensors" + ("" if totals else ", above what was there at first")
        yield from self.process.counter(name, "bytes", times.tolist(), held.tolist())

    def _name(self, number: int) -> str:
        known = self._names.get(number)
        if known is None:
            known = self._names[number] = self.process.text(self.window.trace.names[number])
        return known


def _by_stream(table: Kernels) -> Iterator[tuple[Rows, list[int]]]:
    """Rows of each stream, and the lane of each."""
    stream = streams(table)
    for number in np.unique(stream).tolist():
        rows = np.flatnonzero(stream == number)
        yield rows, lanes(table.start[rows].tolist(), (table.start + table.dur)[rows].tolist())


def _kernel_args(kind: int, moved: int) -> str:
    word = "kernel" if kind == KERNEL else "communication" if kind == COMMUNICATION else OTHERS.get(kind, "annotation")
    return f'{{"kind":"{word}","bytes":{moved}}}' if moved >= 0 else f'{{"kind":"{word}"}}'


def line_of(span: Span | None) -> dict[str, str]:
    """A line, and the file that it is in, whole."""
    return {"line": short(span), "file": span.file} if span else {}
