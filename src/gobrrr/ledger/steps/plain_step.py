"""Work of an accelerator in the plain step, by what it did in the recorded ones.

Recorded steps differ from the plain one for two reasons. Of a trace from elsewhere they are the steps themselves: some
are longer than the median, and more of everything is in them, so that all of it shrinks alike and every share stays
what it was. Of a run that is watched here the profiler makes the host slower and the device not: its work is what it
was, and the rest of the plain step is idle.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gobrrr.ledger.device.idle import Sync
from gobrrr.ledger.model.device import DeviceLedger, DeviceOp, DeviceWork, Transfer
from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.ledger.steps.scaling import times

Op = TypeVar("Op", OpGroup, DeviceOp)


def factors(device: DeviceLedger, plain: float, alike: bool) -> tuple[float, float]:
    """Return the factors of its work and of its idle time. `alike`: all steps were recorded, so that both shrink
    alike."""
    if alike:
        recorded = device.busy_ns + device.idle_ns
        same = plain / recorded if recorded else 1.0
        return same, same
    working = min(1.0, plain / device.busy_ns) if device.busy_ns else 1.0
    return working, max(0.0, plain - device.busy_ns) / device.idle_ns if device.idle_ns else 0.0


def at_plain_step(device: DeviceLedger, working: float, idling: float) -> DeviceLedger:
    """The same per plain step; how often something was called stays as it was recorded."""
    causes, syncs = _idle(device, idling)
    return msgspec.structs.replace(
        device,
        busy_ns=device.busy_ns * working, idle_ns=device.idle_ns * idling, idle_by_cause=causes, syncs=syncs,
        exposed_copy_ns=device.exposed_copy_ns * working,
        copies=tuple((kind, n, size * working, ns * working) for kind, n, size, ns in device.copies),
        kernels=tuple((name, calls, ns * working, kind) for name, calls, ns, kind in device.kernels),
        tensor_core_ns=device.tensor_core_ns * working,
        tensor_core_eligible_ns=device.tensor_core_eligible_ns * working,
        exposed_communication_ns=device.exposed_communication_ns * working,
        transfers=tuple(_transfer(one, working) for one in device.transfers),
        awaited_ns=device.awaited_ns * working,
        lighter=tuple((freed * working, ns) for freed, ns in device.lighter),
        start_up_ns=device.start_up_ns * idling, held_ns=device.held_ns * idling,
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
        work,
        ops=tuple(op_at_plain_step(op, factor) for op in work.ops),
        by_shape=tuple(op_at_plain_step(op, factor) for op in work.by_shape), kernel_ns=work.kernel_ns * factor,
        counted_ns=work.counted_ns * factor, compute_ns=work.compute_ns * factor,
        bandwidth_ns=work.bandwidth_ns * factor, recomputed_flops=work.recomputed_flops * factor,
        not_counted=tuple((name, ns * factor) for name, ns in work.not_counted),
    )  # fmt: skip
