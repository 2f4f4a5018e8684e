"""Op groups: calls of one op with the same shapes, phase and user line, priced against the machine's ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gobrrr.ledger.hostops import HostOps
from gobrrr.ledger.model import OpGroup
from gobrrr.ledger.origins import chains, origins
from gobrrr.ledger.places import Places
from gobrrr.ledger.pricing import Prices, RowPrices, row_prices
from gobrrr.ledger.recomputed import recomputed
from gobrrr.recording.trace import Signature, Trace

COMMUNICATION = ("c10d::", "gloo:", "nccl:", "mpi:", "record_param_comms")


@dataclass
class _Sum:
    """What the calls of one group add up to over the window. `children`: the ops that they call directly."""

    order: int
    calls: int = 0
    children: int = 0
    ns: float = 0.0
    floor: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    bound: str | None = None


@dataclass(frozen=True)
class Calls:
    """The op groups of the window per step, and for each how many ops it calls directly."""

    groups: list[OpGroup]
    children: list[float]


def op_groups(
    host: HostOps, trace: Trace, places: Places, prices: Prices, dispatch_ns: float, updated: Mapping[str, float]
) -> Calls:
    """All groups of the window, per step, in the order of their first call. Annotations have none of their own."""
    origin, enclosing = origins(host).tolist(), chains(host)
    priced = row_prices(host, trace, prices, updated)
    children = np.bincount(host.parent[host.parent >= 0], minlength=len(host)).tolist()
    again = recomputed(host).tolist()
    own, signature, leaf = host.own.tolist(), host.ops.signature.tolist(), host.leaf.tolist()
    sums: dict[tuple[Any, ...], _Sum] = {}
    for row in np.flatnonzero(host.is_op).tolist():
        key = (host.name(row), signature[row], host.phase[row], origin[row], enclosing[row], leaf[row], again[row])
        total = sums.setdefault(key, _Sum(row))
        total.calls += 1
        total.children += children[row]
        total.ns += own[row]
        _add_work(total, priced, row)
    groups = [_group(key, total, trace, places, host.num_steps, dispatch_ns) for key, total in sums.items()]
    return Calls(groups, [total.children / host.num_steps for total in sums.values()])


def _add_work(total: _Sum, priced: RowPrices, row: int) -> None:
    total.floor += priced.floor[row]
    work = priced.work[row]
    if work is not None:
        total.bound = total.bound or priced.bound[row]
        total.flops += work.flops
        total.bytes += work.bytes


def _group(
    key: tuple[Any, ...], total: _Sum, trace: Trace, places: Places, num_steps: int, dispatch_ns: float
) -> OpGroup:
    """A group per step. Of its self time at most a dispatch per call, and one per op that it calls, is torch's own."""
    name, number, phase, origin, parents, leaf, again = key
    signature = trace.signatures[number] if number >= 0 else None
    dispatch = min(total.ns - total.floor, (total.calls + total.children) * dispatch_ns)
    counted = total.bound is not None
    return OpGroup(
        name, _shapes(signature), signature.dtypes if signature else (), _shapes(signature, "strides"),
        signature.concrete if signature else (), phase, places.places[origin].where, total.calls / num_steps,
        total.ns / num_steps, total.floor / num_steps, max(0.0, dispatch) / num_steps,
        total.flops / num_steps if counted else None, total.bytes / num_steps if counted else None, total.bound,
        parents, total.order, leaf, again,
    )  # fmt: skip


def _shapes(signature: Signature | None, field: str = "shapes") -> tuple[tuple[int, ...], ...]:
    """Shapes with lists of tensors left out as (): OpGroup holds plain shapes."""
    found = getattr(signature, field) if signature is not None else ()
    return tuple(tuple(s) if all(isinstance(n, int) for n in s) else () for s in found)


def is_communication(name: str) -> bool:
    """Whether an op is a collective or its transport."""
    return name.startswith(COMMUNICATION)
