"""The time ledger: the profiled window's proportions at the length of the plain step, every nanosecond once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import msgspec

from gobrrr.ledger.model import ACCOUNTS, Account, HostGroup, OpGroup
from gobrrr.ledger.optable import is_communication

# Of what a profiled op or a gap takes, at most this share can be the profiler's own doing.
MAX_SOFT = 0.9
_COMPILING = "(dynamo_timed)"  # torch._dynamo's own marks of its phases


@dataclass(frozen=True)
class Scaled:
    """Groups per plain step, and the factors that brought them there."""

    ops: list[OpGroup]
    host: list[HostGroup]
    soft: float
    hard: float


def scale(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float, dispatch_ns: float) -> Scaled:
    """Bring the window to the plain step of `plain` ns, of which `data` ns wait for a batch.

    The profiler lengthens what happens per event (dispatch, the Python between ops) and leaves long ops alone. So the
    soft part - gaps, wrappers, and per op as much as a dispatch costs here - gives up the excess first; what is then
    still too long or too short is scaled as a whole.
    """
    target = max(0.0, plain - data)
    own = [op for op in ops if op.phase != "data"]
    gaps = [group for group in host if group.phase != "data"]
    soft = sum(_soft(op, dispatch_ns) for op in own) + sum(group.ns for group in gaps)
    total = sum(op.ns for op in own) + sum(group.ns for group in gaps)
    excess = max(0.0, total - target)
    shrink = 1.0 - min(MAX_SOFT, excess / soft) if soft else 1.0
    after = total - (1.0 - shrink) * soft
    hard = target / after if after else 1.0
    scaled = [_shrunk(op, shrink, hard, dispatch_ns) for op in own]
    return Scaled(_data_ops(ops, data) + scaled, [_host(g, shrink * hard) for g in gaps], shrink, hard)


def _soft(op: OpGroup, dispatch_ns: float) -> float:
    return op.ns if not op.leaf else min(op.ns, 2.0 * op.calls * dispatch_ns)


def _shrunk(op: OpGroup, shrink: float, hard: float, dispatch_ns: float) -> OpGroup:
    soft = _soft(op, dispatch_ns)
    ns = (op.ns - soft + soft * shrink) * hard
    floor = min(op.floor_ns, ns)
    dispatch = ns if not op.leaf and op.flops is None else min(ns - floor, op.calls * dispatch_ns)
    return msgspec.structs.replace(op, ns=ns, floor_ns=floor, dispatch_ns=dispatch)


def _data_ops(ops: list[OpGroup], data: float) -> list[OpGroup]:
    """Ops inside the wait for data, as parts of the plain wait."""
    inside = [op for op in ops if op.phase == "data"]
    total = sum(op.ns for op in inside)
    factor = min(1.0, data / total) if total else 0.0
    return [
        msgspec.structs.replace(
            op, ns=op.ns * factor, floor_ns=op.floor_ns * factor, dispatch_ns=op.dispatch_ns * factor
        )
        for op in inside
    ]


def _host(group: HostGroup, factor: float) -> HostGroup:
    return msgspec.structs.replace(group, ns=group.ns * factor)


def accounts(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float, gc_ns: float) -> tuple[Account, ...]:
    """The accounts of a step of `plain` ns; what nobody owns is `unattributed`. Empty accounts are left out."""
    sums: dict[str, float] = defaultdict(float)
    sums["data_wait"] = data
    for op in ops:
        if op.phase != "data":
            _charge(sums, op)
    between = sum(group.ns for group in host)
    sums["gc"] = min(gc_ns, between)
    sums["host"] = between - sums["gc"]
    sums["unattributed"] = plain - sum(sums.values())
    if sums["unattributed"] < 0 and abs(sums["unattributed"]) < 0.01 * plain:
        sums["unattributed"] = 0.0  # rounding of the scale, below the ledger's own tolerance
    return tuple(
        Account(name, sums[name], sums[name] / plain if plain else 0.0)
        for name in ACCOUNTS
        if abs(sums.get(name, 0.0)) > 0.5 or name == "unattributed"
    )


def _charge(sums: dict[str, float], op: OpGroup) -> None:
    if is_communication(op.name) or _COMPILING in op.name:
        sums["compile" if _COMPILING in op.name else "communication"] += op.ns
        return
    rest = op.ns - op.floor_ns - op.dispatch_ns
    sums["dispatch"] += op.dispatch_ns
    if op.bound is None:
        sums["uncounted" if op.leaf and "::" in op.name else "dispatch"] += rest
        return
    sums[op.bound] += op.floor_ns
    sums["inefficiency"] += rest


def phases(ops: list[OpGroup], host: list[HostGroup], data: float, plain: float) -> tuple[tuple[str, float], ...]:
    """Nanoseconds per phase of the plain step; they sum to it."""
    sums: dict[str, float] = defaultdict(float)
    for phase, ns in [(op.phase, op.ns) for op in ops] + [(gap.phase, gap.ns) for gap in host]:
        sums[phase] += ns
    sums["data"] = data
    sums["other"] += plain - sum(sums.values())
    order = ("data", "forward", "loss", "backward", "optimizer", "other")
    return tuple((name, sums[name]) for name in order if abs(sums[name]) > 0.5)
