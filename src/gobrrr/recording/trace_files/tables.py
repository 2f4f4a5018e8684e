"""Fill the tables of a trace, batch by batch, in the file's order."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import compress

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import columns as col
from gobrrr.recording.model.trace import NO_TIME, Ints
from gobrrr.recording.trace_files import categories as cat
from gobrrr.recording.trace_files.wire import MAX_DURATION, NONE, Args, Batch, Event, nanoseconds

_NO_ARGS = Args()


class Tables:
    """The columns while they grow, in the file's order; times are still without the base time."""

    def __init__(self, skipped: Counter[str]) -> None:
        self.skipped = skipped
        self.num_rows = 0
        self.names = col.Texts()
        self.threads = col.Threads()
        self.signatures = col.Interned(col.signature)
        self.stacks = col.Interned(col.stack)
        self.collectives = col.Interned(col.collective)
        self.ops = col.Table(
            name="i", start="q", dur="q", thread="i", kind="B", signature="i", sequence="q", forward_thread="q",
            external_id="q", stack="i", collective="i",
        )  # fmt: skip
        self.kernels = col.Table(
            name="i", start="q", dur="q", device="q", stream="q", correlation="q", external_id="q", kind="B", bytes="q",
            blocks_per_sm="d", collective="i",
        )  # fmt: skip
        self.runtime = col.Table(name="i", start="q", dur="q", thread="i", correlation="q", external_id="q")
        self.flow_starts = col.Table(id="q", time="q", thread="i")
        self.flow_ends = col.Table(id="q", time="q", thread="i")
        self.markers = col.Table(name="i", start="q", dur="q", thread="i")
        self.memory = col.Table(
            start="q", thread="i", bytes="q", address="q", total_allocated="q", total_reserved="q", device_type="q",
            device="q",
        )  # fmt: skip
        self._routes: dict[tuple[str | None, str | None], int] = {}

    def add(self, batch: Batch) -> None:
        """Take in the events of one batch."""
        events, start = batch.events, batch.start
        route = self._route(events)
        for code, reason in ((cat.UNKNOWN, "category not known"), (cat.PHASE, "phase not known")):
            if unknown := int((route == code).sum()):
                self.skipped[reason] += unknown
        micros = np.array([event.dur for event in events], np.float64)
        dur = nanoseconds(micros)
        for code, add in ((cat.HOST, self._add_host), (cat.DEVICE, self._add_device), (cat.RUNTIME, self._add_runtime)):
            chosen = route == code
            if chosen.any():
                add(*self._complete(list(compress(events, chosen.tobytes())), start[chosen], dur[chosen]))
        for code, table in ((cat.FLOW_START, self.flow_starts), (cat.FLOW_END, self.flow_ends)):
            self._add_flows(table, events, start, np.flatnonzero((route == code) & (start != NO_TIME)))
        self._add_instants(events, start, np.flatnonzero((route == cat.INSTANT) & (start != NO_TIME)))
        for i in np.flatnonzero(route == cat.METADATA):
            self.threads.name(events[i])

    def categories(self) -> set[str | None]:
        """Return the categories that were seen."""
        return {category for _, category in self._routes}

    def _route(self, events: list[Event]) -> npt.NDArray[np.uint8]:
        try:
            known = self._routes
            return np.array([known[event.ph, event.cat] for event in events], np.uint8)
        except KeyError:
            return self._route_new(events)

    def _route_new(self, events: list[Event]) -> npt.NDArray[np.uint8]:
        """As `_route`, for a batch with phases or categories that were not seen before."""
        if len(self._routes) > 1 << 16:  # a hostile file with a new category in every event
            self._routes.clear()
        self._routes.update({key: cat.route(*key) for key in {(event.ph, event.cat) for event in events}})
        return np.array([self._routes[event.ph, event.cat] for event in events], np.uint8)

    def _complete(self, events: list[Event], start: Ints, dur: Ints) -> tuple[list[Event], Ints, Ints]:
        """Return the events with a name, a start and a duration; the others are counted by what they lack."""
        lacks = [
            ("no start, or one that is not a time", start == NO_TIME),
            ("no duration, or one that is not a time", (dur == NO_TIME) | (dur > MAX_DURATION)),
            ("no name", np.array([event.name is None for event in events], bool)),
            ("negative duration", dur < 0),
        ]
        good = np.ones(len(events), bool)
        for reason, lack in lacks:
            if count := int((good & lack).sum()):
                self.skipped[reason] += count
                good &= ~lack
        self.num_rows += int(good.sum())
        return (events, start, dur) if good.all() else (list(compress(events, good.tobytes())), start[good], dur[good])

    def _add_host(self, events: list[Event], start: Ints, dur: Ints) -> None:
        args = [event.args or _NO_ARGS for event in events]
        self.ops.extend(
            name=self.names.ids([event.name or "" for event in events]),
            start=start,
            dur=dur,
            thread=self.threads.ids(events),
            kind=[cat.HOST_KINDS[event.cat or ""] for event in events],
            signature=self.signatures.ids(col.signature_keys(args)),
            sequence=col.ints([a.sequence for a in args], self.skipped),
            forward_thread=col.ints([a.forward_thread for a in args], self.skipped),
            external_id=col.ints([a.external_id for a in args], self.skipped),
            stack=self.stacks.ids([b"" if a.stack is NONE else bytes(a.stack) for a in args]),
            collective=self.collectives.ids(col.collective_keys(args)),
        )

    def _add_device(self, events: list[Event], start: Ints, dur: Ints) -> None:
        args = [event.args or _NO_ARGS for event in events]
        self.kernels.extend(
            name=self.names.ids([event.name or "" for event in events]),
            start=start,
            dur=dur,
            device=col.ints(
                [e.pid if a.device == -1 else a.device for e, a in zip(events, args, strict=True)], self.skipped
            ),
            stream=col.ints(
                [e.tid if a.stream == -1 else a.stream for e, a in zip(events, args, strict=True)], self.skipped
            ),
            correlation=col.ints([a.correlation for a in args], self.skipped),
            external_id=self._external(args),
            kind=[cat.DEVICE_KINDS[event.cat or ""] for event in events],
            bytes=col.ints([a.bytes for a in args], self.skipped),
            blocks_per_sm=col.floats([a.blocks_per_sm for a in args]),
            collective=self.collectives.ids(col.collective_keys(args)),
        )

    def _add_runtime(self, events: list[Event], start: Ints, dur: Ints) -> None:
        args = [event.args or _NO_ARGS for event in events]
        self.runtime.extend(
            name=self.names.ids([event.name or "" for event in events]),
            start=start,
            dur=dur,
            thread=self.threads.ids(events),
            correlation=col.ints([a.correlation for a in args], self.skipped),
            external_id=self._external(args),
        )

    def _external(self, args: list[Args]) -> array[int]:
        """The launching op, under the name of today or of 2021."""
        return col.ints([a.external_id if a.external_id != -1 else a.external_id_2021 for a in args], self.skipped)

    def _add_flows(self, table: col.Table, events: list[Event], start: Ints, rows: npt.NDArray[np.intp]) -> None:
        ends = [events[i] for i in rows.tolist()]
        ids = col.ints([event.id for event in ends], self.skipped)
        table.extend(id=ids, time=start[rows], thread=self.threads.ids(ends))

    def _add_instants(self, events: list[Event], start: Ints, rows: npt.NDArray[np.intp]) -> None:
        """Allocations and our own marks; the profiler's other instants say nothing that the windows do not."""
        memory = [i for i in rows.tolist() if events[i].name == "[memory]"]
        if memory:
            self._add_memory([events[i] for i in memory], start[memory])
        marks = [i for i in rows.tolist() if (events[i].name or "").startswith(cat.MARKER)]
        self.num_rows += len(memory) + len(marks)
        if marks:
            marked = [events[i] for i in marks]
            self.markers.extend(
                name=self.names.ids([event.name or "" for event in marked]),
                start=start[marks],
                dur=np.zeros(len(marks), np.int64),
                thread=self.threads.ids(marked),
            )

    def _add_memory(self, events: list[Event], start: Ints) -> None:
        args = [event.args or _NO_ARGS for event in events]
        self.memory.extend(
            start=start,
            thread=self.threads.ids(events),
            bytes=col.ints([a.num_bytes for a in args], self.skipped),
            address=col.ints([a.address for a in args], self.skipped),
            total_allocated=col.ints([a.total_allocated for a in args], self.skipped),
            total_reserved=col.ints([a.total_reserved for a in args], self.skipped),
            device_type=col.ints([a.device_type for a in args], self.skipped),
            device=col.ints([a.device_id for a in args], self.skipped),
        )
