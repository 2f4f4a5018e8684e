"""How do grown tables become a Trace: sorted, with absolute times, and with what follows from all events together?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model.columns import Table, rows, starting_with
from gobrrr.recording.model.trace import (
    COMMUNICATION,
    CPU_OP,
    DEVICE_ANNOTATION,
    KERNEL,
    PYTHON_FUNCTION,
    USER_ANNOTATION,
    Collective,
    Flags,
    Flows,
    Ids,
    Ints,
    Kernels,
    Markers,
    Memory,
    Ops,
    Properties,
    Runtime,
    Steps,
    Trace,
)
from gobrrr.recording.trace_files import categories as cat
from gobrrr.recording.trace_files.tables import Tables
from gobrrr.spans import among

_FLAGS = ("record_shapes", "with_stack", "profile_memory")
_MAX_BASE = 2**61  # ns: half of wire.MAX_TIME, so that sums still fit 64 bits


def assemble(tables: Tables, fields: dict[str, Any], source: str, truncated: bool, note: str) -> Trace:
    """The Trace of complete tables; `fields` are those at the document's top level. The tables are used up."""
    properties = read_properties(fields)
    names = tables.names.all()
    ops = _ops(tables.ops, names, properties.base_time)
    device = _kernels(tables.kernels, names, tables.collectives.all(), properties.base_time)
    kernels = device.take(device.kind <= COMMUNICATION)
    runtime = Runtime(**_sorted(tables.runtime, properties.base_time))
    steps, markers = _steps(ops, names), _markers(tables.markers, ops, names, properties.base_time)
    flows = _flows(tables.flow_starts, tables.flow_ends, properties.base_time)
    memory = Memory(**_sorted(tables.memory, properties.base_time))
    signals = {
        "ops": bool((ops.kind == CPU_OP).any()),
        "shapes": any(signature.shapes for signature in tables.signatures.all()),
        "stacks": bool((ops.stack >= 0).any() or (ops.kind == PYTHON_FUNCTION).any()),
        "python": bool((ops.kind == PYTHON_FUNCTION).any()),
        "device": len(kernels) > 0,
        "links": bool(among(kernels.correlation[kernels.correlation >= 0], runtime.correlation).any()),
        "memory": len(memory) > 0,
        "steps": len(steps) > 0,
        "flows": len(flows) > 0,
    }
    return Trace(
        source=source,
        names=names,
        threads=tables.threads.all(),
        signatures=tables.signatures.all(),
        stacks=tables.stacks.all(),
        collectives=tables.collectives.all(),
        ops=ops,
        kernels=kernels,
        device_annotations=device.take(device.kind == DEVICE_ANNOTATION),
        runtime=runtime,
        flows=flows,
        steps=steps,
        markers=markers,
        memory=memory,
        properties=properties,
        signals=frozenset(name for name, there in signals.items() if there),
        skipped=Counter({reason: count for reason, count in tables.skipped.items() if count}),
        truncated=truncated,
        note=note,
    )


def read_properties(fields: dict[str, Any]) -> Properties:
    """The document's other fields, each as its own type or not at all."""
    fields = dict(fields)
    devices, distributed = fields.pop("deviceProperties", ()), fields.pop("distributedInfo", {})
    *_, base = (
        fields.pop(key, None) for key in ("schemaVersion", "displayTimeUnit", "with_flops", "baseTimeNanoseconds")
    )
    flags = {key: bool(fields.pop(key)) for key in _FLAGS if isinstance(fields.get(key), int)}
    return Properties(
        devices=tuple(d for d in devices if isinstance(d, dict)) if isinstance(devices, list) else (),
        distributed=distributed if isinstance(distributed, dict) else {},
        base_time=base if isinstance(base, int) and abs(base) < _MAX_BASE else 0,
        profiler="torch",
        extra=fields,
        **flags,
    )


def _sorted(table: Table, base: int, tie: str = "") -> dict[str, npt.NDArray[Any]]:
    """Columns by start, the longer event first, then by `tie`, then as they stood in the file."""
    keys = [table.column("start")]
    if "dur" in table:
        keys.insert(0, -table.column("dur"))
    if tie:
        keys.insert(0, table.column(tie))
    order = np.argsort(keys[-1], kind="stable")  # nearly sorted, which durations are not: few rows need them
    start, tied = keys[-1][order], np.zeros(len(order), bool)
    tied[:-1] = start[1:] == start[:-1]
    tied[1:] |= tied[:-1]
    alike = order[tied]
    order[tied] = alike[np.lexsort([key[alike] for key in keys])]
    columns = table.sorted(order)
    columns["start"] += base
    return columns


def _ops(table: Table, names: tuple[str, ...], base: int) -> Ops:
    columns = _sorted(table, base, tie="external_id")
    name, kind = columns["name"], columns["kind"]
    kind[(kind == CPU_OP) & rows(name, starting_with(names, cat.ANNOTATIONS))] = USER_ANNOTATION
    nodes = np.array([cat.NODE.match(each) is not None for each in names], bool)
    marked = (columns["forward_thread"] > 0) | ((kind == CPU_OP) & rows(name, nodes))
    inside = within_marked(columns["start"], columns["dur"], columns["thread"], marked)
    return Ops(**columns, is_backward=inside)


def within_marked(start: Ints, dur: Ints, thread: Ids, marked: Flags) -> Flags:
    """Say whether each event is marked or lies within a marked event of its thread. Events are sorted by start.

    One that begins together with a marked event and outlives it is its parent, not its child.
    """
    inside = marked.copy()
    if not marked.any():
        return inside
    order = np.argsort(thread, kind="stable")
    for rows_ in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1):
        own = rows_[marked[rows_]]
        if not len(own):
            continue
        ends = np.maximum.accumulate(start[own] + dur[own])
        begin, end = start[rows_], start[rows_] + dur[rows_]
        before, until = (np.searchsorted(start[own], begin, side) - 1 for side in ("left", "right"))
        opened_before = (before >= 0) & (ends[before] > begin)
        opened_with = (until >= 0) & (ends[until] > begin) & (ends[until] >= end)
        inside[rows_] |= opened_before | opened_with
    return inside


def _kernels(table: Table, names: tuple[str, ...], collectives: tuple[Collective, ...], base: int) -> Kernels:
    kernels = Kernels(**_sorted(table, base))
    said = np.array([bool(c.name) for c in collectives], bool)
    by_metadata = (kernels.collective >= 0) & rows(np.maximum(kernels.collective, 0), said)
    by_name = rows(kernels.name, np.array([bool(cat.COLLECTIVE_KERNEL.search(name)) for name in names], bool))
    kernels.kind[(kernels.kind == KERNEL) & (by_metadata | by_name)] = COMMUNICATION
    return kernels


def _steps(ops: Ops, names: tuple[str, ...]) -> Steps:
    found = [cat.STEP.fullmatch(name) for name in names]
    numbers = np.array([int(match[1]) if match else -1 for match in found], np.int64)
    windows = ops.take((ops.kind == USER_ANNOTATION) & rows(ops.name, numbers >= 0))
    return Steps(numbers[windows.name], windows.start, windows.dur, windows.thread)


def _markers(table: Table, ops: Ops, names: tuple[str, ...], base: int) -> Markers:
    """Instants and annotations together."""
    marked = ops.take((ops.kind == USER_ANNOTATION) & rows(ops.name, starting_with(names, cat.MARKER)))
    table.extend(name=marked.name, start=marked.start - base, dur=marked.dur, thread=marked.thread)
    return Markers(**_sorted(table, base))


def _flows(starts: Table, ends: Table, base: int) -> Flows:
    """Pairs of a start and an end with one id; a second one with the same id is left out."""
    start_ids, first_start = np.unique(starts.column("id"), return_index=True)
    end_ids, first_end = np.unique(ends.column("id"), return_index=True)
    _, at_start, at_end = np.intersect1d(start_ids, end_ids, assume_unique=True, return_indices=True)
    forward, backward = first_start[at_start], first_end[at_end]
    order = np.argsort(starts.column("time")[forward], kind="stable")
    return Flows(
        forward=starts.column("time")[forward][order] + base,
        forward_thread=starts.column("thread")[forward][order],
        backward=ends.column("time")[backward][order] + base,
    )
