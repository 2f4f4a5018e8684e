"""The time ledger: the profiled window's proportions at the length of the plain step, every nanosecond once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gobrrr.ledger.model.device import DeviceLedger, DeviceWork
from gobrrr.ledger.model.ledger import ACCOUNTS, Account, HostGroup, OpGroup
from gobrrr.recording.trace_files.categories import is_communication

_COMPILING = "(dynamo_timed)"  # torch._dynamo's own marks of its phases
_GLUE = ("TorchDynamo", "Pregraph", "AOTDispatcher", "detach")  # torch's own work around compiled code and nodes


LEAST = 0.5
"""ns of an account: clocks count whole ones, and less is what sums of floats leave."""


def accounts(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float, gc_ns: float) -> tuple[Account, ...]:
    """The accounts of a step of `plain` ns; what nobody owns is `unattributed`. Empty accounts are left out."""
    sums: dict[str, float] = defaultdict(float)
    sums["data_wait"] = data
    for op in ops:
        for name, ns in parts(op) if op.phase != "data" else ():
            sums[name] += ns
    between = sum(group.ns for group in host)
    sums["gc"] = min(gc_ns, between)
    sums["host"] = between - sums["gc"]
    rest = plain - sum(sums.values())  # a little below nothing: rounding of the scale, the ledger's own tolerance
    sums["unattributed"] = 0.0 if -0.01 * plain < rest < LEAST else rest
    return tuple(
        Account(name, sums[name], sums[name] / plain if plain else 0.0)
        for name in ACCOUNTS
        if abs(sums.get(name, 0.0)) > LEAST or name == "unattributed"
    )


def parts(op: OpGroup) -> tuple[tuple[str, float], ...]:
    """(account, ns): to whom the self time of an op outside the loader belongs."""
    if is_communication(op.name) or _COMPILING in op.name:
        return (("compile" if _COMPILING in op.name else "communication", op.ns),)
    rest = ("dispatch" if op.name.startswith(_GLUE) else "uncounted") if op.bound is None else "inefficiency"
    floor = ((op.bound, op.floor_ns),) if op.bound is not None else ()
    return ("dispatch", op.dispatch_ns), *floor, (rest, op.ns - (op.floor_ns if floor else 0.0) - op.dispatch_ns)


def held(groups: Iterable[OpGroup | HostGroup]) -> tuple[tuple[str, float], ...]:
    """(account, ns) of a part of the step, the largest first: in which accounts its time lies."""
    sums: dict[str, float] = defaultdict(float)
    for group in groups:
        whole = "data_wait" if group.phase == "data" else "host"
        own = parts(group) if isinstance(group, OpGroup) and group.phase != "data" else ((whole, group.ns),)
        for name, ns in own:
            sums[name] += ns
    return tuple(sorted(((name, ns) for name, ns in sums.items() if ns > 0), key=lambda part: -part[1]))


def phases(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float) -> tuple[tuple[str, float], ...]:
    """Nanoseconds per phase of the plain step; they sum to it."""
    sums: dict[str, float] = defaultdict(float)
    for phase, ns in [(op.phase, op.ns) for op in ops] + [(gap.phase, gap.ns) for gap in host]:
        sums[phase] += ns
    sums["data"] = data
    sums["other"] += plain - sum(sums.values())
    order = ("data", "forward", "loss", "backward", "optimizer", "other")
    return tuple((name, sums[name]) for name in order if abs(sums[name]) > 0.5)


def device_accounts(device: DeviceLedger, plain: float) -> tuple[Account, ...]:
    """The accounts where an accelerator works, in the plain step: what it does, and why it does nothing."""
    communication = min(device.busy_ns, device.exposed_communication_ns)
    copied = min(device.exposed_copy_ns, device.busy_ns - communication)
    working = device.busy_ns - communication - copied
    sums = {"communication": communication, "copy": copied, **_of_the_work(device.work, working)}
    for cause, ns in device.idle_by_cause:
        name = _IDLE.get(cause, "host")
        sums[name] = sums.get(name, 0.0) + ns
    rest = plain - sum(sums.values())
    sums["unattributed"] = rest if rest > LEAST else 0.0
    return tuple(
        Account(name, sums[name], sums[name] / plain if plain else 0.0)
        for name in ACCOUNTS
        if sums.get(name, 0.0) > LEAST or name == "unattributed"
    )


def _of_the_work(work: DeviceWork | None, working: float) -> dict[str, float]:
    """The device's own time by what bounds it. Kernels of several streams overlap: their proportions are taken."""
    if work is None or not work.kernel_ns:
        return {"uncounted": working}
    part = working / work.kernel_ns
    found = {"compute": part * work.compute_ns, "bandwidth": part * work.bandwidth_ns}
    found["inefficiency"] = part * work.counted_ns - sum(found.values())
    return found | {"uncounted": working - part * work.counted_ns}


_IDLE = {"data_wait": "data_wait", "sync": "sync", "communication": "communication", "launch": "dispatch",
         "allocator": "dispatch", "host": "host", "stalled": "stalled"}  # fmt: skip
