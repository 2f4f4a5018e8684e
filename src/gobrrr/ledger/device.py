"""The accelerator's side of a step: busy and idle over the window, and what the host was doing while it idled."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.hostops import HostOps
from gobrrr.ledger.model import DeviceLedger
from gobrrr.ledger.places import Places
from gobrrr.recording.facts import Span
from gobrrr.recording.trace import COMMUNICATION, MEMCPY, MEMSET, Kernels, Trace

Ints = npt.NDArray[np.int64]
SHORT_KERNEL_NS = 10_000  # TraceLens calls a kernel below 10 us short
_SYNC = re.compile(r"(Synchronize|cudaMemcpy$|hipMemcpy$|hipMemcpyWithStream|StreamWaitValue)")
_ALLOCATOR = re.compile(r"(cuda|hip)(Malloc|Free)")
# First match wins. Names of cuBLAS, cuDNN, CUTLASS, rocBLAS/Tensile, MIOpen, Triton templates and ATen.
_CLASSES = (
    ("attention", re.compile(r"flash|fmha|attention|attn_", re.I)),
    ("convolution", re.compile(r"conv|winograd|implicit_gemm|dgrad|wgrad|fprop|miopen", re.I)),
    ("matmul", re.compile(r"gemm|gemv|splitk|cutlass|cublas|Cijk_|matmul|nvjet|triton_mm|addmm", re.I)),
    ("reduction", re.compile(r"reduce|softmax|norm|welford|_red_|triton_red|triton_per", re.I)),
    ("elementwise", re.compile(r"elementwise|vectorized|unrolled|foreach|multi_tensor|triton_poi|copy", re.I)),
)
_TENSOR_CORE = re.compile(r"tensorop|s\d{3,5}gemm|h\d{3,5}gemm|hmma|imma|wgmma|gmma|xmma|mfma|_tc|bf16gemm|nvjet", re.I)


@dataclass(frozen=True)
class _Idle:
    """Stretches in which no stream works."""

    begin: Ints
    end: Ints

    def overlap(self, begin: int, end: int) -> int:
        """Nanoseconds of [begin, end) in which the device idled."""
        first = int(np.searchsorted(self.end, begin, "right"))
        last = int(np.searchsorted(self.begin, end, "left"))
        part = np.minimum(self.end[first:last], end) - np.maximum(self.begin[first:last], begin)
        return int(part.sum()) if len(part) else 0


def device_ledger(
    trace: Trace, host: HostOps, places: Places, num_steps: int, name: str, capability: str = ""
) -> DeviceLedger | None:
    """Per step over the whole window, from its first moment to its last; None where the trace has no device events."""
    begin, end = int(host.spans[0, 0]), int(host.spans[-1, 1])
    kernels = _inside(trace.kernels, begin, end)
    if not len(kernels):
        return None
    end = max(end, int((kernels.start + kernels.dur).max()))
    starts, ends = union(kernels.start, kernels.start + kernels.dur)
    busy = int((ends - starts).sum())
    idle = _idle(starts, ends, begin, end)
    syncs, sync_ns = _syncs(trace, idle, host, places, num_steps)
    is_copy = kernels.kind == MEMCPY
    return DeviceLedger(
        name=name, busy_ns=busy / num_steps, idle_ns=(end - begin - busy) / num_steps,
        span_busy_share=busy / max(1, int(ends.max() - starts.min())),
        idle_by_cause=_causes(trace, idle, host, sync_ns, end - begin - busy, num_steps),
        exposed_copy_ns=exposed(kernels, is_copy) / num_steps, copies=_copies(trace, kernels.take(is_copy), num_steps),
        kernels=_kernels(trace, kernels, num_steps), syncs=syncs, short_kernel_share=_short(kernels),
        tensor_core_ns=_tensor_core(trace, kernels, True) / num_steps,
        tensor_core_eligible_ns=_tensor_core(trace, kernels, False) / num_steps, capability=capability,
    )  # fmt: skip


def union(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The union of intervals as disjoint ones, in order."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    new = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(ends) - 1]))
    return starts[new], ends[last]


def exposed(kernels: Kernels, chosen: npt.NDArray[np.bool_]) -> int:
    """Nanoseconds in which the chosen events run and no other does: union of all minus union of the others."""
    if not np.any(chosen):
        return 0
    total = _length(kernels.start, kernels.start + kernels.dur)
    others = kernels.take(~chosen)
    return total - (_length(others.start, others.start + others.dur) if len(others) else 0)


def _length(starts: Ints, ends: Ints) -> int:
    begin, end = union(starts, ends)
    return int((end - begin).sum())


def kernel_class(name: str) -> str:
    """matmul, convolution, attention, elementwise, reduction or other, by the kernel's name."""
    return next((label for label, pattern in _CLASSES if pattern.search(name)), "other")


def _inside(kernels: Kernels, begin: int, end: int) -> Kernels:
    return kernels.take((kernels.start >= begin) & (kernels.start < end))


def _idle(starts: Ints, ends: Ints, begin: int, end: int) -> _Idle:
    gaps = np.concatenate(([begin], ends)), np.concatenate((starts, [end]))
    real = gaps[1] > gaps[0]
    return _Idle(gaps[0][real], gaps[1][real])


def _syncs(
    trace: Trace, idle: _Idle, host: HostOps, places: Places, num_steps: int
) -> tuple[tuple[tuple[str, float, float, tuple[Span, ...]], ...], int]:
    """Synchronising calls with the idle they cause: inside the call, and from its return to the next kernel."""
    calls: Counter[tuple[str, int]] = Counter()
    caused: dict[tuple[str, int], int] = defaultdict(int)
    owned_until = 0
    runtime = trace.runtime
    for row in np.flatnonzero((runtime.start >= host.spans[0, 0]) & (runtime.start < host.spans[-1, 1])).tolist():
        name = trace.names[int(runtime.name[row])]
        if not _SYNC.search(name):
            continue
        start, stop = int(runtime.start[row]), int(runtime.start[row] + runtime.dur[row])
        key = (name, int(places.at(np.array([start]))[0]))
        calls[key] += 1
        until = _next_kernel(idle, stop)
        caused[key] += idle.overlap(max(start, owned_until), until)
        owned_until = max(owned_until, until)
    found = tuple(
        (name, calls[(name, place)] / num_steps, ns / num_steps, places.places[place].where)
        for (name, place), ns in sorted(caused.items(), key=lambda item: -item[1])
    )
    return found, sum(caused.values())


def _next_kernel(idle: _Idle, time: int) -> int:
    """The end of the idle stretch that `time` lies in; `time` itself where the device works."""
    row = int(np.searchsorted(idle.begin, time, "right")) - 1
    return int(idle.end[row]) if row >= 0 and idle.end[row] > time else time


def _causes(
    trace: Trace, idle: _Idle, host: HostOps, sync_ns: int, total: int, num_steps: int
) -> tuple[tuple[str, float], ...]:
    """Idle by cause, each nanosecond once: data, sync, allocator, launch (host inside torch ops), host (the rest)."""
    data = sum(idle.overlap(a, b) for a, b in _rows(host, "enumerate(DataLoader)"))
    allocator = 0
    for row in range(len(trace.runtime)):
        if _ALLOCATOR.match(trace.names[int(trace.runtime.name[row])]):
            start = int(trace.runtime.start[row])
            allocator += idle.overlap(start, start + int(trace.runtime.dur[row]))
    roots = host.is_op & (host.parent < 0)
    launch = sum(
        idle.overlap(int(a), int(a + d)) for a, d in zip(host.ops.start[roots], host.ops.dur[roots], strict=True)
    )
    left = total
    found = []
    for name, ns in (("data_wait", data), ("sync", sync_ns), ("allocator", allocator), ("launch", launch)):
        owned = max(0, min(ns, left))
        left -= owned
        found.append((name, owned / num_steps))
    return (*found, ("host", left / num_steps))


def _rows(host: HostOps, prefix: str) -> list[tuple[int, int]]:
    rows = [row for row in range(len(host)) if host.name(row).startswith(prefix)]
    return [(int(host.ops.start[r]), int(host.ops.start[r] + host.ops.dur[r])) for r in rows]


def _copies(trace: Trace, copies: Kernels, num_steps: int) -> tuple[tuple[str, int, float, float], ...]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in range(len(copies)):
        entry = sums[trace.names[int(copies.name[row])]]
        entry[0] += 1
        entry[1] += max(0, int(copies.bytes[row]))
        entry[2] += int(copies.dur[row])
    return tuple(
        (name, round(count / num_steps), num_bytes / num_steps, ns / num_steps)
        for name, (count, num_bytes, ns) in sorted(sums.items(), key=lambda item: -item[1][2])
    )


def _kernels(trace: Trace, kernels: Kernels, num_steps: int) -> tuple[tuple[str, float, float, str], ...]:
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name, dur, kind in zip(kernels.name.tolist(), kernels.dur.tolist(), kernels.kind.tolist(), strict=True):
        entry = sums[name]
        entry[0] += 1
        entry[1] += dur
        entry[2] = kind
    ranked = sorted(sums.items(), key=lambda item: -item[1][1])
    return tuple(
        (trace.names[name], calls / num_steps, ns / num_steps, _class(trace.names[name], int(kind)))
        for name, (calls, ns, kind) in ranked
        if kind not in (MEMCPY, MEMSET)
    )


def _class(name: str, kind: int) -> str:
    return "communication" if kind == COMMUNICATION else kernel_class(name)


def _short(kernels: Kernels) -> float:
    working = (kernels.kind != MEMCPY) & (kernels.kind != MEMSET)
    return float(np.mean(kernels.dur[working] < SHORT_KERNEL_NS)) if np.any(working) else 0.0


def _tensor_core(trace: Trace, kernels: Kernels, used: bool) -> int:
    """Nanoseconds in kernels that could use matrix units, or that by their name do."""
    total = 0
    for name, dur in zip(kernels.name.tolist(), kernels.dur.tolist(), strict=True):
        text = trace.names[name]
        if kernel_class(text) in ("matmul", "convolution", "attention") and (not used or _TENSOR_CORE.search(text)):
            total += dur
    return total
