"""What every op took, on the host by itself and on the device, whichever threads it ran on."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.recording.trace import CPU_OP, Ops, Runtime, Trace, launch_rows
from gobrrr.recording.tree import nest_threads

Ints = npt.NDArray[np.int64]
Key = tuple[str, str]
"""(op, shapes as text); ops of unknown shapes have ""."""
MAX_SHAPES = 120


class OpTime(msgspec.Struct, frozen=True):
    """Per step. `host_ns` is self time, `device_ns` the kernels that it launched itself."""

    calls: float
    host_ns: float
    device_ns: float = 0.0


def op_times(trace: Trace, spans: Ints) -> dict[Key, OpTime]:
    """By op and shapes, of all threads; (n, 2) `spans` are the steps, on the trace's clock."""
    if not len(spans):
        return {}
    inside = (trace.ops.kind == CPU_OP) & (trace.ops.start >= spans[0, 0]) & (trace.ops.start < spans[-1, 1])
    ops = trace.ops.take(inside)
    if not len(ops):
        return {}
    tree = nest_threads(ops.start, ops.dur, ops.thread)
    device = _device_ns(trace, ops, tree.parent)
    pairs = np.stack((ops.name.astype(np.int64), ops.signature.astype(np.int64)), axis=1)
    distinct, group = np.unique(pairs, axis=0, return_inverse=True)
    columns = [
        np.bincount(group.ravel(), w, len(distinct)) / len(spans) for w in (np.ones(len(ops)), tree.self_time, device)
    ]
    found: dict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for (name, signature), *row in zip(distinct.tolist(), *columns, strict=True):
        entry = found[(trace.names[name], _shapes(trace, signature))]
        for place, value in enumerate(row):
            entry[place] += float(value)
    return {key: OpTime(*row) for key, row in found.items()}


def _shapes(trace: Trace, signature: int) -> str:
    shapes = trace.signatures[signature].shapes if signature >= 0 else ()
    return " ".join("x".join(map(str, s)) if s else "-" for s in shapes)[:MAX_SHAPES].rstrip(" -")


def _device_ns(trace: Trace, ops: Ops, parent: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Kernel time by the op that launched it: the innermost one open on its thread when the launch began."""
    found = np.zeros(len(ops))
    launches, kernels = trace.runtime, trace.kernels
    row = launch_rows(kernels, launches)
    linked = row >= 0
    launcher = _innermost(ops, parent, launches)[row[linked]]
    known = launcher >= 0
    np.add.at(found, launcher[known], kernels.dur[linked][known].astype(float))
    return found


def _innermost(ops: Ops, parent: npt.NDArray[np.int32], launches: Runtime) -> npt.NDArray[np.int64]:
    """The row of the innermost op that is open when each launch begins, -1 where none is."""
    found = np.full(len(launches), -1, np.int64)
    ends = ops.start + ops.dur
    for thread in np.unique(launches.thread).tolist():
        mine, rows = np.flatnonzero(launches.thread == thread), np.flatnonzero(ops.thread == thread)
        if not len(rows):
            continue
        before = np.searchsorted(ops.start[rows], launches.start[mine], "right") - 1
        row = np.where(before >= 0, rows[np.maximum(before, 0)], -1)
        while np.any(closed := (row >= 0) & (ends[np.maximum(row, 0)] <= launches.start[mine])):
            row[closed] = parent[row[closed]]
        found[mine] = row
    return found
