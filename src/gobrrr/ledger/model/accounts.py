"""The time ledger: the profiled window's proportions at the length of the plain step, every nanosecond once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gobrrr.ledger.model.device import DeviceLedger, DeviceWork
from gobrrr.ledger.model.ledger import ACCOUNTS, PHASES, Account, HostGroup, OpGroup
from gobrrr.ledger.model.sums import sums
from gobrrr.recording.trace_files.categories import is_communication

_COMPILING = "(dynamo_timed)"  # torch._dynamo's own marks of its phases
_GLUE = ("TorchDynamo", "Pregraph", "AOTDispatcher", "detach")  # torch's own work around compiled code and nodes


LEAST = 0.5
"""ns of an account: clocks count whole ones, and less is what sums of floats leave."""


def accounts(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float, gc_ns: float) -> tuple[Account, ...]:
    """The accounts of a step of `plain` ns; what nobody owns is `unattributed`. Empty accounts are left out."""
    told = sums([("data_wait", data), *(part for op in ops if op.phase != "data" for part in parts(op))])
    between = sum(group.ns for group in host)
    told["gc"] = min(gc_ns, between)
    told["host"] = between - told["gc"]
    rest = plain - sum(told.values())  # a little below nothing: rounding of the scale, the ledger's own tolerance
    return _accounts(told | {"unattributed": 0.0 if -0.01 * plain < rest < LEAST else rest}, plain)


def _accounts(told: Mapping[str, float], plain: float) -> tuple[Account, ...]:
    return tuple(
        Account(name, told[name], told[name] / plain if plain else 0.0)
        for name in ACCOUNTS
        if abs(told.get(name, 0.0)) > LEAST or name == "unattributed"
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
    told = sums(part for group in groups for part in _whole_or_parts(group))
    return tuple(sorted(((name, ns) for name, ns in told.items() if ns > 0), key=lambda part: -part[1]))


def _whole_or_parts(group: OpGroup | HostGroup) -> tuple[tuple[str, float], ...]:
    if group.phase == "data":
        return (("data_wait", group.ns),)
    return parts(group) if isinstance(group, OpGroup) else (("host", group.ns),)


def phases(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float) -> tuple[tuple[str, float], ...]:
    """Nanoseconds per phase of the plain step; they sum to it."""
    groups: list[OpGroup | HostGroup] = [*ops, *host]
    told = sums((group.phase, group.ns) for group in groups) | {"data": data}
    told["other"] = told.get("other", 0.0) + (plain - sum(told.values()))
    return tuple((name, told[name]) for name in PHASES if abs(told.get(name, 0.0)) > 0.5)


def device_accounts(device: DeviceLedger, plain: float) -> tuple[Account, ...]:
    """The accounts where an accelerator works, in the plain step: what it does, and why it does nothing."""
    communication = min(device.busy_ns, device.exposed_communication_ns)
    copied = min(device.exposed_copy_ns, device.busy_ns - communication)
    working = device.busy_ns - communication - copied
    idle = ((_IDLE.get(cause, cause), ns) for cause, ns in device.idle_by_cause)
    works = {"communication": communication, "copy": copied, **_of_the_work(device.work, working)}
    told = sums([*works.items(), *idle])
    rest = plain - sum(told.values())
    return _accounts(told | {"unattributed": rest if rest > LEAST else 0.0}, plain)


def _of_the_work(work: DeviceWork | None, working: float) -> dict[str, float]:
    """The device's own time by what bounds it. Kernels of several streams overlap: their proportions are taken."""
    if work is None or not work.kernel_ns:
        return {"uncounted": working}
    part = working / work.kernel_ns
    found = {"compute": part * work.compute_ns, "bandwidth": part * work.bandwidth_ns}
    found["inefficiency"] = part * work.counted_ns - sum(found.values())
    return found | {"uncounted": working - part * work.counted_ns}


_IDLE = {"launch": "dispatch", "allocator": "dispatch"}
"""Accounts of causes of idle that have another name."""
