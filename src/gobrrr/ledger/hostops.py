"""The main thread's torch ops inside the profiled window: their nesting, self time, phase and place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.places import Places
from gobrrr.recording.run import Recording, Window
from gobrrr.recording.trace import CPU_OP, USER_ANNOTATION, Ops, Trace
from gobrrr.recording.tree import nest

Ints = npt.NDArray[np.int64]
_DATA, _OPTIMIZER = "enumerate(DataLoader)", "Optimizer."
_BACKWARD = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class HostOps:
    """Rows are ops and annotations of one thread, sorted by start. `own` is self time in ns; `place` at the start."""

    ops: Ops
    names: tuple[str, ...]
    parent: npt.NDArray[np.int32]
    own: Ints
    leaf: npt.NDArray[np.bool_]
    is_op: npt.NDArray[np.bool_]
    phase: tuple[str, ...]
    place: npt.NDArray[np.int32]
    begin: int
    end: int

    def __len__(self) -> int:
        return len(self.ops)

    def name(self, row: int) -> str:
        """The op's name."""
        return self.names[int(self.ops.name[row])]


def host_ops(recording: Recording, window: Window, trace: Trace, places: Places) -> HostOps:
    """The window's ops on the thread that makes the steps."""
    begin, end = window.began + window.offset, window.ended + window.offset
    ops = trace.ops
    inside = (ops.start >= begin) & (ops.start + ops.dur <= end + 1_000_000) & (ops.start < end)
    inside &= (ops.kind == CPU_OP) | (ops.kind == USER_ANNOTATION)
    ops = ops.take(inside & (ops.thread == _main_thread(recording, trace, inside)))
    tree = nest(ops.start, ops.dur)
    parent, own = tree.parent, tree.self_time
    is_op = ops.kind == CPU_OP
    leaf = np.ones(len(ops), bool)
    leaf[parent[parent >= 0]] = False
    place = places.at(ops.start)
    phases = _phases(ops, trace.names, parent, places, place)
    return HostOps(ops, trace.names, parent, own, leaf, is_op, phases, place, begin, end)


def _main_thread(recording: Recording, trace: Trace, inside: npt.NDArray[np.bool_]) -> int:
    """The thread whose tid is the process's pid (Linux: the main thread); else the one with most op time."""
    for index, thread in enumerate(trace.threads):
        if str(thread.tid) == str(recording.start.pid) and np.any(trace.ops.thread[inside] == index):
            return index
    if not np.any(inside):
        return 0
    return int(np.argmax(np.bincount(trace.ops.thread[inside], weights=trace.ops.dur[inside].astype(float))))


def _phases(
    ops: Ops, names: tuple[str, ...], parent: npt.NDArray[np.int32], places: Places, place: npt.NDArray[np.int32]
) -> tuple[str, ...]:
    """data and optimizer by torch's own annotations, backward and forward by the line log; the loss lies between."""
    found: list[str] = []
    forward_seen = False
    for row in range(len(ops)):
        above = found[parent[row]] if parent[row] >= 0 else ""
        name = names[ops.name[row]]
        here = places.places[place[row]]
        if above and above != "other" and above != "loss":
            phase = above
        elif name.startswith(_DATA):
            phase = "data"
        elif name.startswith(_OPTIMIZER):
            phase, forward_seen = "optimizer", False
        elif here.backward or name.startswith(_BACKWARD):
            phase, forward_seen = "backward", False
        elif here.module:
            phase, forward_seen = "forward", True
        else:
            phase = "loss" if forward_seen else "other"
        found.append(phase)
    return tuple(found)
