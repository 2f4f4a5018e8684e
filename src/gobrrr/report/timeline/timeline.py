"""One median step along the line of time: the user's lines, host threads by depth, device streams, and who is blamed
while nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.idle import blamed, stalls
from gobrrr.ledger.host.gaps import find_gaps
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.memory import allocated_until
from gobrrr.ledger.ops.op_times import shapes_of
from gobrrr.recording.model.call_tree import nest
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import (
    COMMUNICATION,
    CPU_OP,
    KERNEL,
    USER_ANNOTATION,
    Kernels,
    Ops,
    Runtime,
    Trace,
    lanes,
)
from gobrrr.recording.model.warmup import warmup
from gobrrr.recording.run_folder.run import Recording
from gobrrr.report.timeline.slices import Said, Slice, Track, width_for
from gobrrr.spans import Ints, as_spans, gaps, union
from gobrrr.words import LOADER, STEP

if TYPE_CHECKING:  # it has a Stretch of its own
    from gobrrr.ledger.steps.profiled_window import ProfiledWindow

T = TypeVar("T", Ops, Kernels, Runtime)
MOST = 3500
"""Slices that are drawn: at most 1.2 MB of a page, 0.6 MB of those of real traces."""
THREADS, STREAMS, DEPTH = 4, 8, 6
"""Host threads and streams, those that work most, and levels of nested ops: what is left out is counted."""
POINTS = 400
"""Stretches of the step of which each says the most that memory held."""
CAUSES = {"data_wait": "waits for data", "sync": "a synchronising call", "communication": "waits for other ranks",
          "allocator": "the allocator", "launch": "ops that launch", "host": "Python and native code",
          "stalled": "work was queued"}  # fmt: skip


class Lane(NamedTuple):
    """One thread, stream or kind of wait: rows of slices, the outermost first."""

    name: str
    rows: tuple[tuple[Slice, ...], ...]


class Timeline(NamedTuple):
    """Step `number` of the `num_steps` that were profiled, the one of median length; `joined_ns`: what is narrower was
    joined; `left_out`: events of threads, streams and depths that are not drawn."""

    number: int
    num_steps: int
    ns: int
    lanes: tuple[Lane, ...]
    joined_ns: int
    num_events: int
    left_out: int = 0
    idle: tuple[tuple[str, int], ...] = ()
    """(cause, ns) while nothing ran, of CAUSES."""
    memory: tuple[tuple[int, int], ...] = ()
    """(ns, bytes) that tensors held on the first device, where that was recorded; the most of each stretch."""


def timeline(window: ProfiledWindow | None, most: int = MOST) -> Timeline | None:
    """The profiled step of median length; None where no step was profiled, or nothing of it recorded. Pure."""
    if window is None:
        return None
    begin, end = window.spans[window.median].tolist()
    if end <= begin:
        return None
    step = Stretch(window.trace, window.host, window.places, begin, end)
    named = [(name, tracks) for name, tracks in step.lanes() if any(len(track.start) for track in tracks)]
    tracks = [track for _, found in named for track in found]
    width = width_for(tracks, end - begin, most)
    drawn = tuple(Lane(name, tuple(tuple(track.slices(width)) for track in found)) for name, found in named)
    total = sum(len(track.start) for track in tracks)
    if not drawn:
        return None
    return Timeline(window.median + 1, len(window.spans), end - begin, drawn, width, total, step.left_out,
                    tuple(step.idle.items()), step.memory())  # fmt: skip


def all_steps(window: ProfiledWindow) -> Stretch:
    """Return the profiled steps as one stretch: its lines, and who is blamed while nothing runs."""
    return Stretch(window.trace, window.host, window.places, int(window.spans[0, 0]), window.host.end)


class Stretch:
    """Events in [begin, end) of a trace, by lane."""

    def __init__(self, trace: Trace, host: HostOps, places: Places, begin: int, end: int) -> None:
        self.trace, self.host, self.places, self.begin, self.end = trace, host, places, begin, end
        self.left_out = 0
        self.idle: dict[str, int] = {}

    def lanes(self) -> Iterator[tuple[str, list[Track]]]:
        """(name, rows), from the cause to the effect."""
        ops = self._ops()
        threads = self._busiest(ops.thread, ops.dur, THREADS)
        yield "your lines", [self.lines()]
        yield self.idle_name, [self.idle_pieces()]
        main = self.main_thread()
        for thread in sorted(threads, key=lambda thread: thread != main):
            name = "main thread" if thread == main else f"thread {self.trace.threads[thread].tid}"
            yield name, self._nested(ops.take(ops.thread == thread))
        yield "runtime calls", [self._calls()]
        kernels = _touching(self.trace.kernels, self.begin, self.end)
        lane = lanes(kernels)
        for number in self._busiest(lane, kernels.dur, STREAMS):
            work = kernels.take(lane == number)
            yield f"device {work.device[0]} stream {work.stream[0]}", [self._stream(work)]

    def _ops(self) -> Ops:
        ops = self.trace.ops
        found = ops.take((ops.kind == CPU_OP) | (ops.kind == USER_ANNOTATION))
        found = _touching(found, self.begin, self.end)
        steps = [i for i, name in enumerate(self.trace.names) if name.startswith(STEP)]
        return found.take(~np.isin(found.name, steps))

    def _busiest(self, column: npt.NDArray[np.integer], dur: Ints, most: int) -> list[int]:
        """Return the `most` values of `column` whose rows take most time; count the rows of the others as left out."""
        distinct, at, count = np.unique(column, return_inverse=True, return_counts=True)
        order = np.argsort(-np.bincount(at, dur.astype(float), len(distinct)), kind="stable")
        self.left_out += int(count[order[most:]].sum())
        return [int(each) for each in distinct[order[:most]]]

    def main_thread(self) -> int:
        """The thread that makes the steps: of the host's ops, which the backward's thread may make more of."""
        own = self.host.ops.thread[~self.host.ops.is_backward]
        return int(np.bincount(own).argmax()) if len(own) else -1

    def _nested(self, ops: Ops) -> list[Track]:
        """A row for each depth."""
        depth = [0] * len(ops)
        for row, parent in enumerate(nest(ops.start, ops.dur).parent.tolist()):
            depth[row] = depth[parent] + 1 if parent >= 0 else 0
        levels = np.array(depth, np.int64)
        self.left_out += int((levels >= DEPTH).sum())
        return [self._host_row(ops.take(levels == level)) for level in range(min(DEPTH, max(depth, default=-1) + 1))]

    def _host_row(self, ops: Ops) -> Track:
        names, at = self.trace.names, self.places.at(ops.start)
        kinds = ["op" if kind == CPU_OP else "wait" if names[name].startswith(LOADER) else "annotation"
                 for kind, name in zip(ops.kind.tolist(), ops.name.tolist(), strict=True)]  # fmt: skip

        def tell(row: int) -> Said:
            return Said(names[ops.name[row]], shapes_of(self.trace, int(ops.signature[row])), self._where(int(at[row])))

        return self._track(ops.start, ops.start + ops.dur, kinds, tell)

    def _calls(self) -> Track:
        calls = _touching(self.trace.runtime, self.begin, self.end)
        before = np.maximum.accumulate(np.append(self.begin, calls.start + calls.dur))[:-1]
        calls = calls.take((calls.start >= before) | (np.arange(len(calls)) == 0))  # a driver's lie in a runtime's
        at = self.places.at(calls.start)
        names = [self.trace.names[name] for name in calls.name.tolist()]
        return self._track(calls.start, calls.start + calls.dur, ["call"] * len(calls),
                           lambda row: Said(names[row], "", self._where(int(at[row]))))  # fmt: skip

    def _stream(self, rows: Kernels) -> Track:
        kinds = ["communication" if kind == COMMUNICATION else "kernel" if kind == KERNEL else "copy"
                 for kind in rows.kind.tolist()]  # fmt: skip
        return self._track(rows.start, rows.start + rows.dur, kinds, lambda row: Said(self.trace.names[rows.name[row]]))

    @property
    def idle_name(self) -> str:
        """Name of the lane that idle_pieces() fills."""
        return "device idle" if len(self.trace.kernels) else "no op runs"

    def idle_pieces(self) -> Track:
        """Return when nothing runs, by cause."""
        return self._idle() if len(self.trace.kernels) else self._gaps()

    def _idle(self) -> Track:
        """Return when no stream works, by cause."""
        begin, end = int(self.host.spans[0, 0]), int(self.host.spans[-1, 1])
        kernels = self.trace.kernels.take((self.trace.kernels.start >= begin) & (self.trace.kernels.start < end))
        if not len(kernels):
            return self._pieces({"host": np.array([[begin, end]])})
        working = union(as_spans(kernels.start, kernels.dur))
        idle = gaps(working, begin, max(end, int(working[-1, 1])))
        stalled = stalls(kernels, self.trace.runtime, idle)
        return self._pieces(blamed(self.trace, idle, stalled, self.host, self.places))

    def _gaps(self) -> Track:
        """Return when the main thread runs no op: it waits for data, or does Python."""
        gaps, waits = find_gaps(self.host, self.places), self.host.ops.take(self.host.waits_for_data)
        causes = {"host": np.stack((gaps.start, gaps.end), axis=1), "data_wait": as_spans(waits.start, waits.dur)}
        return self._pieces(causes)

    def _pieces(self, by_cause: dict[str, Ints]) -> Track:
        """Disjoint stretches of each cause as one row."""
        pieces = sorted((a, b, cause) for cause, spans in by_cause.items() for a, b in spans.tolist()
                        if a < self.end and b > self.begin)  # fmt: skip
        edges = np.clip(np.array([(a, b) for a, b, _ in pieces], np.int64).reshape(-1, 2), self.begin, self.end)
        for (start, end), (_, _, cause) in zip(edges.tolist(), pieces, strict=True):
            self.idle[cause] = self.idle.get(cause, 0) + end - start
        at = self.places.at(edges[:, 0])
        kinds = [cause for _, _, cause in pieces]
        return self._track(edges[:, 0], edges[:, 1], kinds,
                           lambda row: Said(CAUSES[kinds[row]], "", self._where(int(at[row]))))  # fmt: skip

    def lines(self) -> Track:
        """The user's innermost line at each moment, where lines were recorded."""
        times = self.places.times
        first, last = int(np.searchsorted(times, self.begin, "right")), int(np.searchsorted(times, self.end))
        edges = np.concatenate(([self.begin], times[first:last], [self.end])).astype(np.int64)
        lines = [self._where(state) for state in self.places.at(edges[:-1]).tolist()]
        new = [row for row, line in enumerate(lines) if row == 0 or line != lines[row - 1]]
        stops = dict(zip(new, [*new[1:], len(lines)], strict=True))
        rows = [row for row in new if lines[row] is not None]
        return self._track(edges[rows], edges[[stops[row] for row in rows]], ["line"] * len(rows),
                           lambda row: Said("", "", lines[rows[row]]))  # fmt: skip

    def memory(self) -> tuple[tuple[int, int], ...]:
        """Return (ns, bytes held), thinned to the most of each stretch, and the bytes at the end; they can be below
        zero where the recording began later."""
        table, held, _ = allocated_until(self.trace, self.end)
        first = int(np.searchsorted(table.start, self.begin, "right"))
        if not len(held):
            return ()
        times = np.concatenate(([0], table.start[first:] - self.begin))
        held = np.concatenate((held[first - 1 : first] if first else [0], held[first:])).astype(np.int64)
        cells = times * POINTS // (self.end - self.begin)
        order = np.lexsort((-held, cells))
        most = np.sort(order[np.flatnonzero(np.diff(cells[order], prepend=-1))])
        found = [(int(times[row]), int(held[row])) for row in most.tolist()]
        return (*found, (self.end - self.begin, int(held[-1])))

    def _where(self, place: int) -> Span | None:
        where = self.places.places[place].where
        return where[0] if where else None

    def _track(self, start: Ints, end: Ints, kind: Sequence[str], tell: Callable[[int], Said]) -> Track:
        """Clipped to the step and counted from its begin."""
        return Track(np.maximum(start, self.begin) - self.begin, np.minimum(end, self.end) - self.begin, kind, tell)


def _touching(table: T, begin: int, end: int) -> T:
    """The rows that any of [begin, end) lies in."""
    return table.take((table.start < end) & (table.start + table.dur > begin))


MOST_STEPS = 2000
"""Steps that are drawn; of longer runs every n-th, and all that are slow."""
SLOW = 1.5
"""Multiple of the median from which a plain step is marked as slow."""
KINDS = ("plain", "slow", "warm-up", "window", "other")


class StepTime(NamedTuple):
    """One step of the main loop."""

    number: int
    """Number of the step in its loop, from 1 on."""
    ns: int
    kind: str
    """plain; slow: a plain one far above the median; warm-up; window: somebody looked closely; other: after a window,
    or of another kind than was profiled."""


def step_times(recording: Recording) -> tuple[StepTime, ...]:
    """Return the steps of the main loop, in order; none for a profiler's trace: all its steps are of its window."""
    main = recording.main
    if main is None or recording.offline:
        return ()
    plain = [step.wall for step in main.plain]
    settled = warmup(plain)
    median = sorted(plain[settled:])[len(plain[settled:]) // 2] if plain[settled:] else 0
    found, seen = [], 0
    for number, step in enumerate(main.steps, 1):
        kind = "window" if step.window else "other"
        if step.plain:
            kind = "warm-up" if seen < settled else "slow" if step.wall > SLOW * median else "plain"
            seen += 1
        elif step.rests:
            kind = "slow" if median and step.wall > SLOW * median else "plain"
        found.append(StepTime(number, step.wall, kind))
    every = -(-len(found) // MOST_STEPS)
    kept = [step for step in found if step.kind == "slow"][:MOST_STEPS]
    return tuple(sorted({*found[::every], *kept}))
