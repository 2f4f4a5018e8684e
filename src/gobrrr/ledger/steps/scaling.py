"""From the profiled step to the plain one: what the instruments added is taken out where they added it.

The profiler keeps its records before and after an op's own interval, and the line log is called per line and per
library function. So the time they add falls on the ops that call other ops and on the Python around ops, and hardly on
the ops that do the work. What cannot be theirs is scaled as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from gobrrr.ledger.device.idle import Sync
from gobrrr.ledger.host.gaps import Gaps, find_gaps, grouped
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.hot_paths import Frames, Hot
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.device import DeviceLedger, DeviceOp, DeviceWork, SizedCalls, Transfer
from gobrrr.ledger.model.ledger import HostGroup, OpGroup
from gobrrr.ledger.ops.op_groups import Calls
from gobrrr.recording.model.facts import Span
from gobrrr.spans import Flags, Ints, lengths, overlap, parts
from gobrrr.words import LOADER

# In dispatches of a small op, so that they follow the machine's speed. Measured with torch 2.13 and Python 3.11 on a
# step of 870 ops, as the least of 60 steps: an op's record, the library calls around an outermost op, a traced line.
PER_OP, PER_CALL, PER_LINE = 0.5, 1.2, 0.6
# How far off these may be: older interpreters trace slower, ops with many inputs are dearer to record.
STRETCH = 2.5
# Of what a group takes under the profiler, at most this share is the instruments' doing.
MAX_ADDED = 0.9
# A plain step that is longer than the profiled one by more than this holds something that the profile has not seen.
MAX_GROWTH = 2.0


Group = TypeVar("Group", OpGroup, HostGroup, DeviceOp, DeviceWork, DeviceLedger, SizedCalls)


@dataclass(frozen=True)
class Seen:
    """The profiled steps, per step: the groups, and what the instruments are expected to have added to each (ns).

    `waited`: the wait for data, as the profiled steps had it.
    """

    ops: list[OpGroup]
    ops_added: list[float]
    host: list[HostGroup]
    host_added: list[float]
    waited: float = 0.0


NOTHING_SEEN = Seen([], [], [], [])


@dataclass(frozen=True)
class Scaled:
    """Groups per plain step. `factor` is what all were multiplied by after the instruments' part was taken out."""

    ops: list[OpGroup]
    host: list[HostGroup]
    added: float = 0.0
    factor: float = 1.0


def seen(
    calls: Calls, host: HostOps, places: Places, dispatch_ns: float, idle: Ints | None = None,
    frames: Frames | None = None,
) -> Seen:  # fmt: skip
    """Return the profiled steps, with the part of the instruments in each group. With a device's `idle` only that
    counts of the time between ops. `frames`: calls of library functions, to say what of them had a line's time."""
    gaps = find_gaps(host, places)
    spans = np.stack((gaps.start, gaps.end), axis=1)

    def hot(pieces: Flags, line: Span) -> Hot:
        """The library's path below a line while it ran, with a device while that idled."""
        own = spans[pieces] if idle is None else parts(idle, spans[pieces])
        return frames.hot(own, line) if frames is not None else ()

    ns = lengths(spans) if idle is None else overlap(spans, idle)
    pairs = grouped(gaps, ns, gap_added(gaps) * dispatch_ns, host, places, hot)
    outermost = np.flatnonzero(host.parent < 0).tolist()
    waited = sum(int(host.ops.dur[row]) for row in outermost if host.name(row).startswith(LOADER))
    return Seen(
        ops=calls.groups,
        ops_added=[PER_OP * dispatch_ns * children for children in calls.children],
        host=[group for group, _ in pairs],
        host_added=[added for _, added in pairs],
        waited=waited / host.num_steps,
    )


def gap_added(gaps: Gaps) -> np.ndarray:
    """Dispatches that each piece of a gap holds too many: one op's record and calls per gap, a line per event."""
    length = (gaps.end - gaps.start).astype(float)
    whole = np.bincount(gaps.number, length) if len(length) else length
    found: np.ndarray = (PER_OP + PER_CALL) * length / whole[gaps.number] + PER_LINE * gaps.traced
    return found


def scale(profiled: Seen, data: float, plain: float, longer: float = 1.0) -> Scaled:
    """Bring the profiled step to the plain one of `plain` ns, of which `data` ns wait for a batch.

    No group grows where the profiled step was the longer one. A profile that is much too short is not stretched to
    fit: the rest of the step stays nobody's. Where steps grow, plain ones are `longer` than those around the profiled
    ones, and do so much more of the same.
    """
    if longer > 1:
        profiled = _repeated(profiled, longer)
    own = [pair for pair in zip(profiled.ops, profiled.ops_added, strict=True) if pair[0].phase != "data"]
    gaps = [pair for pair in zip(profiled.host, profiled.host_added, strict=True) if pair[0].phase != "data"]
    target = max(0.0, plain - data)
    pairs = [(op.ns, added) for op, added in own] + [(gap.ns, added) for gap, added in gaps]
    total, expected = sum(ns for ns, _ in pairs), sum(added for _, added in pairs)
    share = min(STRETCH, max(0.0, total - target) / expected) if expected else 0.0
    taken = [min(share * added, MAX_ADDED * ns) for ns, added in pairs]
    rest = total - sum(taken)
    factor = min(target / rest, MAX_GROWTH) if rest > 0 else 1.0
    ops = [_op(op, (op.ns - less) * factor) for (op, _), less in zip(own, taken, strict=False)]
    host = [
        msgspec.structs.replace(gap, ns=(gap.ns - less) * factor)
        for (gap, _), less in zip(gaps, taken[len(own) :], strict=True)
    ]
    return Scaled(_inside_wait(profiled, data) + ops, host, sum(taken), factor)


def _repeated(profiled: Seen, longer: float) -> Seen:
    """Steps in which all of it comes so many times."""
    return Seen(
        [times(op, longer, "calls", "ns", "floor_ns", "dispatch_ns", "flops", "bytes") for op in profiled.ops],
        [added * longer for added in profiled.ops_added],
        [times(gap, longer, "calls", "ns") for gap in profiled.host],
        [added * longer for added in profiled.host_added],
        profiled.waited * longer,
    )


def times(group: Group, factor: float, *fields: str) -> Group:
    """The same with so many times as much in these fields, as far as they are known."""
    known = {name: value * factor for name in fields if (value := getattr(group, name)) is not None}
    return msgspec.structs.replace(group, **known)


def _op(op: OpGroup, ns: float) -> OpGroup:
    floor = min(op.floor_ns, ns)
    return msgspec.structs.replace(op, ns=ns, floor_ns=floor, dispatch_ns=min(op.dispatch_ns, ns - floor))


def _inside_wait(profiled: Seen, data: float) -> list[OpGroup]:
    """Ops inside the wait for data, in the proportion that they have of the profiled wait; they never grow."""
    inside = [op for op in profiled.ops if op.phase == "data"]
    waited = max(profiled.waited, sum(op.ns for op in inside))
    factor = min(1.0, data / waited) if waited else 0.0
    return [_op(op, op.ns * factor) for op in inside]


# Work of an accelerator in the plain step, by what it did in the recorded ones. These differ from the plain one for two
# reasons. Of a trace from elsewhere they are the steps themselves: some are longer than the median, and more of
# everything is in them, so that all of it shrinks alike and every share stays what it was. Of a run that is watched
# here the profiler makes the host slower and the device not: its work is what it was, and the rest of the plain step is
# idle.

Op = TypeVar("Op", OpGroup, DeviceOp)


def factors(device: DeviceLedger, plain: float, alike: bool) -> tuple[float, float]:
    """Factors of its work and of its idle time; the same where all steps were recorded (`alike`)."""
    if alike:
        recorded = device.busy_ns + device.idle_ns
        same = plain / recorded if recorded else 1.0
        return same, same
    working = min(1.0, plain / device.busy_ns) if device.busy_ns else 1.0
    return working, max(0.0, plain - device.busy_ns) / device.idle_ns if device.idle_ns else 0.0


def at_plain_step(device: DeviceLedger, working: float, idling: float) -> DeviceLedger:
    """The same per plain step; how often something was called stays as it was recorded."""
    causes, syncs = _idle(device, idling)
    device = times(device, idling, "idle_ns", "start_up_ns", "held_ns")
    device = times(device, working, "busy_ns", "exposed_copy_ns", "tensor_core_ns", "tensor_core_eligible_ns",
                   "exposed_communication_ns", "awaited_ns")  # fmt: skip
    return msgspec.structs.replace(
        device, idle_by_cause=causes, syncs=syncs, longest=(device.longest[0], device.longest[1] * working),
        copies=tuple((kind, n, size * working, ns * working) for kind, n, size, ns in device.copies),
        kernels=tuple((name, calls, ns * working, kind) for name, calls, ns, kind in device.kernels),
        transfers=tuple(_transfer(one, working) for one in device.transfers),
        lighter=tuple((freed * working, ns) for freed, ns in device.lighter),
        host_ops=tuple((op, n, ns * idling, at) for op, n, ns, at in device.host_ops),
        work=_work(device.work, working) if device.work else None,
    )  # fmt: skip


def _idle(device: DeviceLedger, idling: float) -> tuple[tuple[tuple[str, float], ...], tuple[Sync, ...]]:
    """Idle by cause and the synchronising calls. Waits cost what they cost at the plain step, where that is known, out
    of what the host owns; the rest of that is its launches and its Python, as they were in the window."""
    causes = {cause: ns * idling for cause, ns in device.idle_by_cause}
    if device.plain_syncs is None:
        return tuple(causes.items()), tuple((call, n, ns * idling, at) for call, n, ns, at in device.syncs)
    late = {cause: causes.get(cause, 0.0) for cause in ("launch", "host")}
    total, told = causes.get("sync", 0.0) + sum(late.values()), sum(ns for _, _, ns, _ in device.plain_syncs)
    waits = min(total, told)
    whole = sum(late.values())
    share = {cause: ns / whole for cause, ns in late.items()} if whole else {"launch": 0.0, "host": 1.0}
    causes |= {"sync": waits, **{cause: part * (total - waits) for cause, part in share.items()}}
    part = waits / told if told else 0.0
    return tuple(causes.items()), tuple((call, n, ns * part, at) for call, n, ns, at in device.plain_syncs)


def _transfer(one: Transfer, factor: float) -> Transfer:
    """Fewer calls of the same size, at the same rate."""
    return Transfer(
        one.kind, tuple(times(size, factor, "calls", "ns", "fastest_ns", "bus_bytes") for size in one.sizes)
    )


def op_at_plain_step(op: Op, factor: float) -> Op:
    """An op's time and its work, so that what it does per second stays."""
    return times(op, factor, "ns", "floor_ns", "flops", "bytes")


def _work(work: DeviceWork, factor: float) -> DeviceWork:
    return msgspec.structs.replace(
        times(work, factor, "kernel_ns", "counted_ns", "compute_ns", "bandwidth_ns", "recomputed_flops"),
        ops=tuple(op_at_plain_step(op, factor) for op in work.ops),
        by_shape=tuple(op_at_plain_step(op, factor) for op in work.by_shape),
        not_counted=tuple((name, ns * factor) for name, ns in work.not_counted),
    )
