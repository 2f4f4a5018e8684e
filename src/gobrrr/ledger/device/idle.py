"""When no stream of the accelerator works, and what the host was doing meanwhile."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.sums import sums
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import MEMCPY, Ids, Kernels, Runtime, Trace, launch_rows
from gobrrr.spans import Ints, among, as_spans, ends_of, lengths, merged, overlap, parts, total

Sync = tuple[str, float, float, tuple[Span, ...]]
"""(call, calls per step, idle ns per step that it causes, user lines)."""
_SYNC = re.compile(r"(Synchronize|cudaMemcpy$|hipMemcpy$|hipMemcpyWithStream|StreamWaitValue)")
_PAGEABLE = re.compile(r"Pageable")
START_UP_NS = 100_000_000
"""A call into the runtime that is no wait takes microseconds; making a context or loading a module 0.1 s and more."""
LOADS_NS = 1_000_000
"""So long a first launch of a kernel loads its module (CUDA's lazy loading): launches take 5 to 20 us (proposed: 12 to
56 ms in a first call on a 4090)."""
LAUNCH_NS = 20_000
"""From the return of a launch to the begin of its kernel, at most: 5 to 20 us are usual (HTA's launch statistics)."""
ALLOCATOR = re.compile(r"(cuda|hip)(Malloc|Free)")


HOLE = 1_000_000
"""ns without an op after which the host is on its way to no launch: that takes it 10 to 100 us (proposed)."""


def stalls(kernels: Kernels, runtime: Runtime, idle: Ints) -> Ints:
    """(n, 2) stretches of idle in which the device had its next work: the launch of what ended the idle had returned,
    and all that starting it may take was over. Not the host's fault, whatever it did meanwhile: power, another process,
    a fabric, what nodes of a graph wait for."""
    row = launch_rows(kernels, runtime)
    launched = (row >= 0) & among(kernels.start, idle[:, 1])
    returned = (runtime.start + runtime.dur)[row[launched]]
    order = np.lexsort((returned, kernels.start[launched]))
    starts = kernels.start[launched][order]
    first = np.flatnonzero(np.diff(starts, prepend=starts[:1] - 1))  # of those that begin at once
    ends = starts[first]
    begins = idle[np.searchsorted(idle[:, 1], ends), 0]
    found = np.stack((np.maximum(begins, returned[order][first]) + LAUNCH_NS, ends), axis=1)
    return found[found[:, 1] > found[:, 0]]


def named(trace: Trace, column: npt.NDArray[np.int32], pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Mark rows with a name that the pattern finds; every name is looked at once."""
    hits = np.array([pattern.search(name) is not None for name in trace.names], bool)
    return hits[column] if len(column) else np.zeros(0, bool)


def idle_causes(
    trace: Trace, idle: Ints, stalled: Ints, host: HostOps, places: Places, whole: int
) -> tuple[tuple[tuple[str, float], ...], tuple[Sync, ...], Ints, float, tuple[Sync, ...]]:
    """Idle ns per step by cause, each nanosecond once, the first of these that holds: stalled, data, communication
    (the host waits for a thread that carries a collective), sync, allocator, launch (the host is inside a torch
    op), host (the rest); the synchronising calls; and the idle in which ops and Python kept the device waiting, those
    in a wait for data or for ranks among them; of the host's what lies in stretches longer than HOLE, per step; and
    ops that compute on the host, as of _host_ops()."""
    steps, unstalled = host.num_steps, parts(idle, stalled, outside=True)
    causes, syncs = _causes(trace, idle, stalled, host, places)
    apart = _apart(idle, causes)
    rest = lengths(apart.pop("host"))
    owned = np.minimum(whole, np.cumsum([0, *map(total, apart.values())])).tolist()
    found = [(name, (now - before) / steps) for name, before, now in zip(apart, owned, owned[1:], strict=False)]
    others = parts(unstalled, merged(np.concatenate((causes["sync"], causes["allocator"]))), outside=True)
    kept = merged(np.concatenate((others, parts(unstalled, merged(causes["data_wait"])))))
    held = float(rest[rest > HOLE].sum()) / steps
    computing = _host_ops(trace, idle, causes, host, places)
    return (*found, ("host", (whole - owned[-1]) / steps)), syncs, kept, held, computing


def blamed(trace: Trace, idle: Ints, stalled: Ints, host: HostOps, places: Places) -> dict[str, Ints]:
    """The stretches of idle by cause, as idle_causes() counts them: disjoint, and together all of it."""
    return _apart(idle, _causes(trace, idle, stalled, host, places)[0])


def _apart(idle: Ints, causes: dict[str, Ints]) -> dict[str, Ints]:
    """Each nanosecond of idle once, at the first that holds; what nothing explains is the host's."""
    found: dict[str, Ints] = {}
    for name, spans in causes.items():
        its = merged(spans)
        found[name], idle = parts(idle, its), parts(idle, its, outside=True)
    return found | {"host": idle}


def _causes(
    trace: Trace, idle: Ints, stalled: Ints, host: HostOps, places: Places
) -> tuple[dict[str, Ints], tuple[Sync, ...]]:
    """When each may be blamed, the first that holds; and the synchronising calls."""
    waiting, ranks = stretches_of(host, host.waits_for_data), stretches_of(host, host.waits_for_ranks)
    elsewhere = np.concatenate((waiting, ranks))
    syncs, stretches = _syncs(trace, parts(idle, stalled, outside=True), elsewhere, host, places)
    calls = trace.runtime.take(named(trace, trace.runtime.name, ALLOCATOR))
    allocating = as_spans(calls.start, calls.dur)
    launching = parts(
        merged(stretches_of(host, host.is_op)), merged(stretches_of(host, _on_host(trace, host))), outside=True
    )
    causes = {"stalled": stalled, "data_wait": waiting, "communication": ranks, "sync": stretches,
              "allocator": allocating, "launch": launching}  # fmt: skip
    return causes, syncs


def _on_host(trace: Trace, host: HostOps) -> npt.NDArray[np.bool_]:
    """Mark long ops in which nothing is launched: they compute on the host, random numbers say."""
    starts = np.sort(trace.runtime.start)
    found: npt.NDArray[np.bool_] = host.is_op & (host.ops.dur > HOLE) & (len(starts) > 0)
    long = host.ops.take(found)
    found[found] = np.searchsorted(starts, long.start + long.dur) == np.searchsorted(starts, long.start)
    return found & ~host.waits_for_data & ~host.waits_for_ranks


def _host_ops(trace: Trace, idle: Ints, causes: dict[str, Ints], host: HostOps, places: Places) -> tuple[Sync, ...]:
    """Ops that compute on the host for long, the outermost ones, with the idle that nothing before them explains."""
    before = merged(np.concatenate([spans for name, spans in causes.items() if name != "launch"]))
    idle = parts(idle, before, outside=True)
    ops = host.ops.take(_on_host(trace, host))
    ends = ops.start + ops.dur
    ops = ops.take(ends > np.append(-1, np.maximum.accumulate(ends)[:-1])[: len(ends)])
    return told_syncs(trace, host, places, ops.name, ops.start, overlap(as_spans(ops.start, ops.dur), idle))


def awaited(trace: Trace, idle: Ints, host: HostOps) -> int:
    """Nanoseconds for which a call has the host wait for work that was launched before: its own copy is not such."""
    calls, _, copies = waits_for_device(trace, host)
    spans = merged(as_spans(calls.start, calls.dur))
    own = int(trace.kernels.dur[copies[copies >= 0]].sum())
    return max(0, total(spans) - int(overlap(spans, idle).sum()) - own)


def starting_up(trace: Trace, idle: Ints, host: HostOps) -> int:
    """Idle nanoseconds inside calls that only the device's start-up makes so long: contexts, modules, streams."""
    runtime, kernels = trace.runtime, trace.kernels
    long = (runtime.dur >= START_UP_NS) & ~named(trace, runtime.name, _SYNC)
    if len(kernels) and len(runtime):
        row = launch_rows(kernels, runtime)
        known = np.flatnonzero((row >= 0) & (kernels.kind != MEMCPY))
        _, first = np.unique(kernels.name[known], return_index=True)  # rows are sorted by start
        loads = row[known[first]]
        long[loads[runtime.dur[loads] >= LOADS_NS]] = True
    calls = runtime.take(long & (runtime.start >= host.begin) & (runtime.start < host.end))
    return int(overlap(merged(as_spans(calls.start, calls.dur)), idle).sum())


def stretches_of(host: HostOps, chosen: npt.NDArray[np.bool_]) -> Ints:
    """(n, 2) begin and end of the chosen rows."""
    ops = host.ops
    return as_spans(ops.start[chosen], ops.dur[chosen])


def _syncs(trace: Trace, idle: Ints, waiting: Ints, host: HostOps, places: Places) -> tuple[tuple[Sync, ...], Ints]:
    """Synchronising calls with the idle they cause, and the stretches of it: inside the call, and from its return to
    the next kernel, but no longer than the call kept the host waiting. Without it the host would have been so much
    ahead, and not more: what it does between a wait for nothing and its next launch is its own affair. Idle in which
    the loop is `waiting` for data comes before."""
    calls, names, _ = waits_for_device(trace, host)
    spans = as_spans(calls.start, calls.dur)
    blocked = calls.dur - overlap(spans, idle)
    stretches = spans.copy()
    stretches[:, 1] = np.minimum(ends_of(spans[:, 1], idle), spans[:, 1] + blocked)
    begins = np.concatenate(([0], np.maximum.accumulate(stretches[:, 1])[:-1])) if len(stretches) else stretches[:, 0]
    own = np.stack((np.maximum(stretches[:, 0], begins), stretches[:, 1]), axis=1)
    caused = overlap(own, parts(idle, merged(waiting), outside=True)) * (own[:, 1] > own[:, 0])
    return told_syncs(trace, host, places, names, calls.start, caused), stretches


def waits_for_device(trace: Trace, host: HostOps) -> tuple[Runtime, npt.NDArray[np.int32], Ints]:
    """The steps' calls in which the host waits for the device, their names, and the row of each call's copy, or -1."""
    runtime, copies = trace.runtime, _blocking_copies(trace)
    rows = (copies >= 0) | named(trace, runtime.name, _SYNC)
    rows &= (runtime.start >= host.begin) & (runtime.start < host.end)
    calls, copies = runtime.take(rows), copies[rows]
    names = np.where(copies >= 0, trace.kernels.name[copies], calls.name) if len(trace.kernels) else calls.name
    return calls, names, copies


def _blocking_copies(trace: Trace) -> Ints:
    """Per call into the runtime the row of the copy from or to pageable memory that was done when it returned; -1. Such
    a copy makes even an asynchronous call wait (CUDA's API synchronization behavior; nsys' rule on pageable memory)."""
    found = np.full(len(trace.runtime), -1, np.int64)
    kernels = trace.kernels
    copies = np.flatnonzero((kernels.kind == MEMCPY) & named(trace, kernels.name, _PAGEABLE))
    launch = launch_rows(kernels.take(copies), trace.runtime)
    known = launch >= 0
    copies, launch = copies[known], launch[known]
    ends, returned = (kernels.start + kernels.dur)[copies], (trace.runtime.start + trace.runtime.dur)[launch]
    found[launch[ends <= returned]] = copies[ends <= returned]
    return found


def told_syncs(
    trace: Trace, host: HostOps, places: Places, names: Ids, starts: Ints, caused: npt.NDArray[np.generic]
) -> tuple[Sync, ...]:
    """By call and place, the dearest first."""
    keys = list(zip(names.tolist(), places.at(starts).tolist(), strict=True))
    count, steps = Counter(keys), host.num_steps
    dearest = sorted(sums(zip(keys, caused.tolist(), strict=True)).items(), key=lambda item: -item[1])
    return tuple(
        (trace.names[name], count[name, place] / steps, ns / steps, places.places[place].where)
        for (name, place), ns in dearest
    )
