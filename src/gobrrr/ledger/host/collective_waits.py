"""When did the main thread wait for a collective that another thread carried?

Gloo and MPI send from threads of their own, and torch has no event for the wait itself: DistributedDataParallel waits
at the end of its backward pass, between two ops, where the account would call it Python. A stretch without ops is such
a wait as far as a transfer was under way that ended when the thread went on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gobrrr.recording.model.trace import CPU_OP, Ops, Trace
from gobrrr.recording.trace_files.categories import is_communication
from gobrrr.spans import Ints

PROMPT_NS, PROMPT_SHARE = 500_000, 0.2
"""How soon after a transfer the thread goes on that waited for it, at most; the share is of the wait."""


class Wait(NamedTuple):
    """ns on the trace's clock; `name` is the transfer's, into the trace's names."""

    start: int
    end: int
    name: int


def with_waits(ops: Ops, trace: Trace, lines: Ints) -> Ops:
    """`ops`, those of the thread that steps, with an op for every wait, named as the transfer. `lines`: sorted times at
    which the thread came to another line: what lies before them is Python's."""
    waits = list(_waits(ops, _transfers(ops, trace), lines))
    return ops.with_rows([wait.name for wait in waits], [wait.start for wait in waits],
                         [wait.end - wait.start for wait in waits], CPU_OP)  # fmt: skip


def _transfers(ops: Ops, trace: Trace) -> Ops:
    """Return transfers that other threads made, sorted by their end."""
    named = np.array([n for n, name in enumerate(trace.names) if is_communication(name)], np.int64)
    others = ~np.isin(trace.ops.thread, np.unique(ops.thread))
    found = trace.ops.take(np.isin(trace.ops.name, named) & others)
    return found.take(np.argsort(found.start + found.dur, kind="stable"))


def _waits(ops: Ops, transfers: Ops, lines: Ints) -> Iterator[Wait]:
    ends = transfers.start + transfers.dur
    for begin, end in _gaps(ops) if len(transfers) else ():
        first, last = np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end, "right") - 1
        if last < first:
            continue
        until = int(ends[last])
        came = int(np.searchsorted(lines, until, "right")) - 1
        start = max(begin, _under_way(transfers.take(slice(first, last + 1))), int(lines[came]) if came >= 0 else begin)
        if end - until <= max(PROMPT_NS, PROMPT_SHARE * (until - start)) and start < until:
            yield Wait(start, until, int(transfers.name[last]))


def _under_way(transfers: Ops) -> int:
    """Since when one was, up to the end of the last: those that follow on each other at once are one wait."""
    starts, ends = transfers.start.tolist(), (transfers.start + transfers.dur).tolist()
    since: int = starts.pop()
    while starts and since - ends[len(starts) - 1] <= PROMPT_NS:
        since = min(since, starts.pop())
    return since


def _gaps(ops: Ops) -> Iterator[tuple[int, int]]:
    """Begin and end of the stretches between two ops; annotations are none."""
    working = ops.take(ops.kind == CPU_OP)
    over = np.maximum.accumulate(working.start + working.dur) if len(working) else working.start
    for row in np.flatnonzero(working.start[1:] > over[:-1]).tolist():
        yield int(over[row]), int(working.start[row + 1])
