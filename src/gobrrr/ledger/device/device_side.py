"""The accelerator's side of a step: busy and idle over the window, kernels by class, copies, what nothing hides."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.idle import awaited, idle_causes, named, stalls, starting_up
from gobrrr.ledger.device.kernel_names import TENSOR_CORE, VECTOR_UNITS, kernel_class
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.job.collectives import transfers, within_a_host
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.recording.model.trace import COMMUNICATION, MEMCPY, MEMSET, Kernels, Trace, lanes, launch_rows
from gobrrr.spans import Flags, Ints, among, as_spans, gaps, total, union

AHEAD = 0.05
"""Share of the kernels that no chance lets begin before their launch (proposed): of 54,000 in 13 real traces none."""
DEPENDENT = 9.0
"""Compute capability from which a kernel may rightly begin before the one before it on its stream ends (programmatic
dependent launch, CUDA's programming guide): of a B200's kernels 8 % did, by 0.6 % of their time."""
SHORT_KERNEL_NS = 10_000  # TraceLens calls a kernel below 10 us short
_MATRIX = ("matmul", "convolution", "attention")
_INSIDE = re.compile(r"DtoD|Device -> Device")
"""A copy within the device is work on its memory, as a kernel's: nothing is transferred."""
_MIGRATED = re.compile(r"Managed")
_GRAPH = re.compile(r"GraphLaunch")
_BEGINS, _ENDS = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
_KERNEL = re.compile(r"Launch\w*Kernel")


def device_ledger(
    trace: Trace, host: HostOps, places: Places, num_steps: int, name: str, capability: str = ""
) -> tuple[DeviceLedger, Ints] | None:
    """Per step over the whole window, from its first moment to its last, and when ops and Python kept the device
    waiting; None where the trace has no device events."""
    begin, end = int(host.spans[0, 0]), int(host.spans[-1, 1])
    kernels = host.launched(trace.kernels, trace.runtime)
    if not len(kernels):
        return None
    end = max(end, int((kernels.start + kernels.dur).max()))
    working = union(as_spans(kernels.start, kernels.dur))
    busy, idle = total(working), gaps(working, begin, end)
    stalled = stalls(kernels, trace.runtime, idle)
    causes, syncs, kept, held, computing = idle_causes(trace, idle, stalled, host, places, end - begin - busy)
    is_copy, communicates = kernels.kind == MEMCPY, kernels.kind == COMMUNICATION
    rows = launch_rows(kernels, trace.runtime)
    linked = rows >= 0
    owned = linked | (is_copy & named(trace, kernels.name, _MIGRATED))  # no call launches what a page fault moves
    matrix, cores = _matrix_ns(trace, kernels)
    unseen, captured = _lost(trace, begin, end)
    by_graph = _by_graph(trace, kernels)
    ledger = DeviceLedger(
        name=name, busy_ns=busy / num_steps, idle_ns=(end - begin - busy) / num_steps,
        span_busy_share=_span_busy(kernels.take(owned) if np.any(linked) else kernels), idle_by_cause=causes,
        exposed_copy_ns=exposed(kernels, is_copy & ~named(trace, kernels.name, _INSIDE)) / num_steps,
        copies=_copies(trace, kernels.take(is_copy), num_steps),
        kernels=_kernels(trace, kernels, num_steps), longest=_longest(trace, kernels, num_steps), syncs=syncs,
        short_kernel_share=_short(kernels, by_graph),
        underfilled_share=_underfilled(kernels),
        tensor_core_ns=cores / num_steps, tensor_core_eligible_ns=matrix / num_steps, capability=capability,
        exposed_communication_ns=exposed(kernels, communicates) / num_steps,
        transfers=transfers(trace, kernels, num_steps), within_a_host=within_a_host(trace, kernels),
        unlinked_share=float(np.mean(~owned)), replayed_share=_part(kernels, by_graph),
        unseen_share=unseen, captured_share=captured, overlap_share=_overlap(kernels, may_overlap(capability)),
        ahead_ns=_ahead(kernels.start[linked] - trace.runtime.start[rows[linked]]),
        awaited_ns=awaited(trace, idle, host) / num_steps,
        start_up_ns=starting_up(trace, idle, host) / num_steps, held_ns=held,
        host_ops=computing,
    )  # fmt: skip
    return ledger, kept


def exposed(kernels: Kernels, chosen: Flags) -> int:
    """Nanoseconds in which the chosen events run and no other does: union of all minus union of the others."""
    if not np.any(chosen):
        return 0
    return _length(kernels) - _length(kernels.take(~chosen))


def _length(kernels: Kernels) -> int:
    return total(union(as_spans(kernels.start, kernels.dur)))


def _span_busy(kernels: Kernels) -> float:
    """Busy share from the first to the last event, of those whose launch was recorded (TraceLens counts so)."""
    first, last = int(kernels.start.min()), int((kernels.start + kernels.dur).max())
    return _length(kernels) / max(1, last - first)


def _by_graph(trace: Trace, kernels: Kernels) -> Flags:
    """Mark kernels that a graph launched: they cannot be charged to ops or lines."""
    graphs = trace.runtime.correlation[named(trace, trace.runtime.name, _GRAPH)]
    return among(kernels.correlation, graphs)


def _part(kernels: Kernels, chosen: Flags) -> float:
    """Share of the device's work."""
    total = float(kernels.dur.sum())
    return float(kernels.dur[chosen].sum()) / total if total else 0.0


def _lost(trace: Trace, begin: int, end: int) -> tuple[float, float]:
    """Shares of the launches of a kernel: whose kernel was not recorded, and those that a graph captured."""
    runtime = trace.runtime
    rows = launches(trace) & (runtime.start >= begin) & (runtime.start < end)
    if not rows.any():
        return 0.0, 0.0
    captured = _captured(trace)
    there = among(runtime.correlation, trace.kernels.correlation)
    return float(np.mean(~there[rows] & ~captured[rows])), float(np.mean(captured[rows]))


def may_overlap(capability: str) -> bool:
    """Whether a kernel may begin before the one before it in its stream has ended: programmatic dependent launch."""
    major = capability.partition(".")[0]
    return major.isdecimal() and float(major) >= DEPENDENT


def _captured(trace: Trace) -> Flags:
    """Mark calls that lie between the begin of a capture and its end."""
    runtime = trace.runtime
    begins, ends = (np.sort(runtime.start[named(trace, runtime.name, part)]) for part in (_BEGINS, _ENDS))
    before = np.searchsorted(begins, runtime.start, "right")
    found: Flags = before > np.searchsorted(ends, runtime.start, "left")
    return found


def _overlap(kernels: Kernels, may: bool) -> float:
    """How much of the device's work runs beside other work of its stream, which a stream does not do: a share of its
    time or, where kernels may not begin early, of its events, whichever is more (one endless kernel owns all time)."""
    lane, total = lanes(kernels), int(kernels.dur.sum())
    apart = beside = 0
    for number in np.unique(lane).tolist():
        own = kernels.take(lane == number)
        apart += _length(own)
        beside += int((own.start[1:] < np.maximum.accumulate(own.start + own.dur)[:-1]).sum())
    if not total:
        return 0.0
    return 1 - apart / total if may else max(1 - apart / total, beside / len(kernels))


def _ahead(delays: Ints) -> float:
    """How long before their launch a part of the kernels begin that is no chance."""
    return max(0.0, -float(np.quantile(delays, AHEAD))) if len(delays) else 0.0


def launches(trace: Trace) -> Flags:
    """Mark rows of the runtime that launch one kernel each."""
    return named(trace, trace.runtime.name, _KERNEL)


def _sums(names: npt.NDArray[np.int32], *weights: Ints) -> tuple[list[int], list[list[float]]]:
    """Distinct names with the count of each and the sums of weights."""
    distinct, at = np.unique(names, return_inverse=True)
    columns = [np.bincount(at, minlength=len(distinct)), *(np.bincount(at, w.astype(float)) for w in weights)]
    return distinct.tolist(), np.stack(columns, axis=1).astype(float).tolist() if len(distinct) else []


def _copies(trace: Trace, copies: Kernels, num_steps: int) -> tuple[tuple[str, int, float, float], ...]:
    rows = zip(*_sums(copies.name, np.maximum(copies.bytes, 0), copies.dur), strict=True)
    return tuple(
        (trace.names[name], round(count / num_steps), num_bytes / num_steps, ns / num_steps)
        for name, (count, num_bytes, ns) in sorted(rows, key=lambda row: -row[1][2])
    )


def _kernels(trace: Trace, kernels: Kernels, num_steps: int) -> tuple[tuple[str, float, float, str], ...]:
    work = kernels.take((kernels.kind != MEMCPY) & (kernels.kind != MEMSET))
    communicating = set(work.name[work.kind == COMMUNICATION].tolist())
    rows = sorted(zip(*_sums(work.name, work.dur), strict=True), key=lambda row: -row[1][1])
    return tuple(
        (
            trace.names[name], calls / num_steps, ns / num_steps,
            "communication" if name in communicating else kernel_class(trace.names[name]),
        )
        for name, (calls, ns) in rows
    )  # fmt: skip


def _longest(trace: Trace, kernels: Kernels, num_steps: int) -> tuple[str, float]:
    """Name of the kernel with most time in which nothing else runs, and that time."""
    times = np.concatenate((kernels.start, kernels.start + kernels.dur))
    signs = np.repeat(np.array([1, -1]), len(kernels))
    order = np.argsort(times, kind="stable")
    rows = np.tile(np.arange(len(kernels)), 2)
    running, which = np.cumsum(signs[order])[:-1], np.cumsum((signs * rows)[order])[:-1]
    alone = running == 1  # then the sum of the rows that run is the row
    sums = np.bincount(kernels.name[which[alone]], np.diff(times[order])[alone], len(trace.names))
    sums[np.unique(kernels.name[(kernels.kind == MEMCPY) | (kernels.kind == MEMSET)])] = 0
    most = int(sums.argmax())
    return (trace.names[most], float(sums[most]) / num_steps) if sums[most] > 0 else ("", 0.0)


def _short(kernels: Kernels, by_graph: Flags) -> float:
    """Share of the kernels that run shorter than a launch takes, and were launched each by itself."""
    working = (kernels.kind != MEMCPY) & (kernels.kind != MEMSET)
    short = (kernels.dur < SHORT_KERNEL_NS) & ~by_graph
    return float(np.mean(short[working])) if np.any(working) else 0.0


def _underfilled(kernels: Kernels) -> float | None:
    known = kernels.dur[~np.isnan(kernels.blocks_per_sm)].sum()
    return float(kernels.dur[kernels.blocks_per_sm < 1].sum() / known) if known else None


def _matrix_ns(trace: Trace, kernels: Kernels) -> tuple[float, float]:
    """ns in products, convolutions and attention that by their names leave matrix units alone, and that use them."""
    rows = [(trace.names[name], ns) for name, (_, ns) in zip(*_sums(kernels.name, kernels.dur), strict=True)]
    matrix = [(name, ns) for name, ns in rows if kernel_class(name) in _MATRIX]
    without, using = (sum(ns for name, ns in matrix if units.search(name)) for units in (VECTOR_UNITS, TENSOR_CORE))
    return without, using
