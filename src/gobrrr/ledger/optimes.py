"""What every op took, on the host by itself and on the device, whichever threads it ran on."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.launchers import launchers
from gobrrr.recording.trace import CPU_OP, Ops, Trace
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
    """Kernel time by the op that launched it."""
    found = np.zeros(len(ops))
    launcher = launchers(trace.kernels, trace.runtime, ops, parent)
    known = launcher >= 0
    np.add.at(found, launcher[known], trace.kernels.dur[known].astype(float))
    return found
