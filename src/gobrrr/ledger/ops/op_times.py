"""Time of every op, on the host by itself and on the device, whichever threads it ran on."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.launchers import launchers, time_launched
from gobrrr.recording.model.call_tree import nest_threads, with_children
from gobrrr.recording.model.trace import CPU_OP, Trace
from gobrrr.spans import Ints
from gobrrr.units import shape_text

Key = tuple[str, str]
"""(op, shapes as text); ops of unknown shapes have ""."""
MAX_SHAPES = 120  # characters of shapes; proposed: fits one line; ops that differ only later would settle it
NEARLY_ALL = 0.95
"""Share of an op's calls by one caller, from which its time may be counted as that caller's (proposed)."""


class OpTime(msgspec.Struct, frozen=True):
    """Per step. `host_ns` is self time, `device_ns` the kernels that it launched itself; the totals are with what the
    ops that it calls took."""

    calls: float
    host_ns: float
    device_ns: float = 0.0
    host_total_ns: float = 0.0
    device_total_ns: float = 0.0
    within: Key | None = None
    """The op that makes nearly all of its calls; null where none does."""


def op_times(trace: Trace, spans: Ints) -> dict[Key, OpTime]:
    """By op and shapes, of all threads; (n, 2) `spans` are the steps, on the trace's clock."""
    if not len(spans):
        return {}
    inside = (trace.ops.kind == CPU_OP) & (trace.ops.start >= spans[0, 0]) & (trace.ops.start < spans[-1, 1])
    ops = trace.ops.take(inside)
    if not len(ops):
        return {}
    tree = nest_threads(ops.start, ops.dur, ops.thread)
    launcher = launchers(trace.kernels, trace.runtime, ops, tree.parent)
    device = time_launched(trace.kernels, launcher, len(ops))
    columns = (np.ones(len(ops)), tree.self_time, device, ops.dur, with_children(device, tree.parent))
    pairs = np.stack((ops.name.astype(np.int64), ops.signature.astype(np.int64)), axis=1)
    distinct, group = np.unique(pairs, axis=0, return_inverse=True)
    group = group.ravel()
    keys = [(trace.names[name], shapes_of(trace, signature)) for name, signature in distinct.tolist()]
    found: dict[Key, list[float]] = defaultdict(lambda: [0.0] * len(columns))
    for key, *row in zip(keys, *(np.bincount(group, w, len(keys)) / len(spans) for w in columns), strict=True):
        for place, value in enumerate(row):
            found[key][place] += float(value)
    within = _within(keys, group, tree.parent)
    return {
        key: OpTime(calls, host, device, total, on_device, within.get(key))
        for key, (calls, host, device, total, on_device) in found.items()
    }


def _within(keys: list[Key], group: Ints, parent: npt.NDArray[np.int32]) -> dict[Key, Key]:
    """The key of the op that makes nearly all of a key's calls, for those that have one."""
    called = np.flatnonzero(parent >= 0)
    codes, counts = np.unique(group[called] * len(keys) + group[parent[called]], return_counts=True)
    calls: dict[Key, int] = defaultdict(int)
    for number, count in enumerate(np.bincount(group, minlength=len(keys)).tolist()):
        calls[keys[number]] += count
    makes: dict[tuple[Key, Key], int] = defaultdict(int)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        makes[keys[code // len(keys)], keys[code % len(keys)]] += count
    return {
        inner: outer for (inner, outer), count in makes.items() if inner != outer and count > NEARLY_ALL * calls[inner]
    }


def shapes_of(trace: Trace, signature: int) -> str:
    """'8x16 16x4', of what an op was called with; empty where that was not recorded."""
    shapes = trace.signatures[signature].shapes if signature >= 0 else ()
    return " ".join(shape_text(s) if s else "-" for s in shapes)[:MAX_SHAPES].rstrip(" -")
