"""How much time in collectives is waiting for the latest rank, and how much is transfer? Call by call, without clocks.

Where every rank needs data of every other (all-reduce, all-gather, reduce-scatter, all-to-all), none can end before the
last one has come, and all end at about the same moment: within 7 us in DLRM's calls on 8 V100s of one host. So the
rank whose kernel is the shortest came last, that shortest time is the transfer, and what the others' kernels are longer
they waited. No clock of one rank is held against another's. It does not hold for broadcast, reduce, send and receive,
where ranks may leave before others come: those are not split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from gobrrr import units
from gobrrr.ledger.job.calls import NAMES, Calls, GroupCalls, bare_in_the_last
from gobrrr.ledger.job.collectives import bus_factor
from gobrrr.machine.model.links import LARGE, NETWORK, Link, far_below, link_of

Rows = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]
MEETING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""Kinds in which every rank needs all others."""
CODES = [NAMES.index(kind) for kind in MEETING]
TOGETHER = 10_000
"""ns within which ranks come at once (proposed): the ends of one call were seen to differ by 7 us."""
LOST = 0.1
"""Share of calls that may be on some ranks alone, or different there, before nothing is split (proposed)."""
SIZES = 8
"""Kinds and sizes that are told of a group, those with most transfer."""


class Told(msgspec.Struct, frozen=True):
    """One rank's calls, and what a recorded ns of them (or a bare one) is worth in its plain step."""

    rank: int | None
    source: str
    calls: Calls
    per_step: float = 1.0
    bare_per_step: float = 1.0
    device: str = ""
    within_a_host: bool = False
    """All ranks fit in the devices of this one's host."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in one group; ns per step."""

    rank: int | None
    source: str
    waiting_ns: float
    exposed_waiting_ns: float
    """With no other work beside it."""
    exposed_transfer_ns: float
    last: int = 0
    """Calls to which it came last, by more than TOGETHER."""
    late_ns: float = 0.0
    """How much earlier those calls would have ended had it come with the one before it."""


class SizedTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kind and size."""

    kind: str
    size: float
    """Bytes of one call; 0 where the files do not say."""
    calls: int
    """In all recorded steps."""
    transfer_ns: float
    """Mean transfer of one call, ns."""
    bus_rate: float = 0.0
    """Bytes per second over the transfer alone; 0 where sizes are not known."""
    alone_ns: float | None = None
    """One call between processes of this machine that do nothing else; null where nobody measured it."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One process group over the ranks whose files are there; ns per step."""

    group: str
    ranks: str = ""
    size: int = 0
    """Ranks in the group as the files say; 0 unknown."""
    partial: bool = False
    """Some of its ranks' files are not here: what is waiting for those counts as transfer."""
    calls: int = 0
    """That were split, in all recorded steps."""
    together: int = 0
    """Calls among those to which nobody came late."""
    transfer_ns: float = 0.0
    waiting_ns: float = 0.0
    """Waiting of the median rank, ns."""
    exposed_waiting_ns: float = 0.0
    exposed_transfer_ns: float = 0.0
    sizes: tuple[SizedTransfer, ...] = ()
    waits: tuple[Waiting, ...] = ()
    """Waiting of each rank; the one that came last most often is first."""
    link: str = ""
    """How fast its transfers are, and what that is of the link's data sheet; empty where sizes are not known."""
    fits: bool = False
    """All ranks fit in one host's devices, whose link is known."""
    slow: bool = False
    """Large messages stay far below that link."""
    doubts: tuple[str, ...] = ()


def lateness(told: Sequence[Told], world: int = 0) -> tuple[Group, ...]:
    """By group, most waiting first, of a job of `world` ranks (0 unknown); without groups of one rank, and those of
    which one rank's file alone is there."""
    members: dict[tuple[str, str], list[tuple[Told, GroupCalls]]] = defaultdict(list)
    for one in told:
        for group in one.calls.groups:
            members[group.group, group.ranks].append((one, group))
    found = [_group(of, world) for of in members.values() if len(of) > 1 and of[0][1].size != 1]
    return tuple(sorted(found, key=lambda one: (-one.waiting_ns, -one.transfer_ns, one.group, one.ranks)))


def _group(members: list[tuple[Told, GroupCalls]], world: int) -> Group:
    first = members[0][1]
    size = first.size or world
    all_calls = [group.table() for _, group in members]
    met = [_where(np.isin(table["kind"], CODES), table) for table in all_calls]
    apart = max(len(table) - len(those) for table, those in zip(all_calls, met, strict=True))
    # Of ranks that were cut some tell fewer, as they had other calls between.
    most = (min if any(one.calls.told < one.calls.count for one, _ in members) else max)(map(len, met))
    tables, alike = _matched(met)
    doubts = tuple(_doubts(members, size, most - len(alike), most, int((~alike).sum()), apart))
    empty = Group(group=first.group, ranks=first.ranks, size=first.size, partial=size > len(members), doubts=doubts)
    if not most:
        return empty
    if alike.sum() < (1 - LOST) * most:
        return msgspec.structs.replace(empty, doubts=(*doubts, "nothing is split"))
    tables = [_where(alike, table) for table in tables]
    durations = np.stack([table["ns"] for table in tables]).astype(float)
    ordered = np.sort(durations, axis=0)
    transfer, gap = ordered[0], ordered[1] - ordered[0]
    last = np.where(gap > TOGETHER, durations.argmin(axis=0), -1)
    waits = [
        _waiting(one, table, transfer, gap * (last == at))
        for at, ((one, _), table) in enumerate(zip(members, tables, strict=True))
    ]
    return msgspec.structs.replace(
        empty, calls=len(transfer), together=int((last < 0).sum()),
        transfer_ns=_middle(one.per_step * transfer.sum() for one, _ in members),
        waiting_ns=_middle(one.waiting_ns for one in waits),
        exposed_waiting_ns=_middle(one.exposed_waiting_ns for one in waits),
        exposed_transfer_ns=_middle(one.exposed_transfer_ns for one in waits),
        sizes=tuple(_sizes(tables[0], transfer, first.size)),
        waits=tuple(sorted(waits, key=lambda one: (-one.last, one.waiting_ns, one.source))),
    )  # fmt: skip


def _where(mask: npt.NDArray[np.bool_], table: Rows) -> Rows:
    """Return the masked rows, with no copy made without need: there may be a thousand ranks' tables."""
    return table if mask.all() else table[mask]


def _matched(tables: list[Rows]) -> tuple[list[Rows], npt.NDArray[np.bool_]]:
    """The calls that all have, and which of them are the same on all."""
    common = reduce(np.intersect1d, [table["number"] for table in tables])
    tables = [t if len(t) == len(common) else t[np.searchsorted(t["number"], common)] for t in tables]
    kinds, sizes = (np.stack([table[name] for table in tables]) for name in ("kind", "size"))
    free = kinds[0] == NAMES.index("all-to-all")  # each rank sends what it has
    return tables, (kinds == kinds[0]).all(axis=0) & (free | (sizes == sizes[0]).all(axis=0))


def _waiting(one: Told, table: Rows, transfer: Floats, late: Floats) -> Waiting:
    moved = bare_in_the_last(table, transfer)
    return Waiting(
        rank=one.rank, source=one.source, waiting_ns=one.per_step * float((table["ns"] - transfer).sum()),
        exposed_waiting_ns=one.bare_per_step * float((table["bare"] - moved).sum()),
        exposed_transfer_ns=one.bare_per_step * float(moved.sum()),
        last=int((late > 0).sum()), late_ns=one.per_step * float(late.sum()),
    )  # fmt: skip


def _sizes(table: Rows, transfer: Floats, num_ranks: int) -> list[SizedTransfer]:
    """Kinds and sizes with most transfer; an all-to-all's size is the first rank's."""
    found = []
    for kind, size in {(int(row["kind"]), float(row["size"])) for row in table}:
        ns = transfer[(table["kind"] == kind) & (table["size"] == size)]
        bus = size * bus_factor(NAMES[kind], num_ranks) if num_ranks > 1 else 0.0
        rate = bus * len(ns) / ns.sum() * 1e9 if ns.sum() else 0.0
        found.append(SizedTransfer(
            kind=NAMES[kind], size=size, calls=len(ns), transfer_ns=float(ns.mean()), bus_rate=float(rate),
        ))  # fmt: skip
    return sorted(found, key=lambda one: (-one.calls * one.transfer_ns, one.kind, one.size))[:SIZES]


def _doubts(
    members: list[tuple[Told, GroupCalls]], size: int, lost: int, most: int, different: int, apart: int
) -> Iterator[str]:  # fmt: skip
    """Yield reasons why these figures may not be true."""
    if size > len(members):
        yield (
            f"of {size} ranks {len(members)} are here: the latest may be another, so that the transfer is no more "
            "than this"
        )
    if most and not all(group.numbered for _, group in members):
        yield "the files do not number the calls: they are matched by their order in each step"
    if lost:
        yield f"{lost} of {most} calls are not in every rank's file"
    if different:
        yield f"{different} calls are not the same on all ranks"
    if apart:
        yield f"{apart} calls are no all-reduce, all-gather, reduce-scatter or all-to-all: they are not split"
    if cut := [one.calls for one, _ in members if one.calls.told < one.calls.count]:
        yield f"of the first {cut[0].told} of {max(one.count for one in cut)} calls of each rank"


def _middle(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


# Does the link carry what its data sheet says, by the transfer alone?


def linked(group: Group, told: Sequence[Told]) -> Group:
    """The group with what the best of its large calls says of the link: BRR702, without the waiting that it has there.

    Nothing is judged where the ranks may be on several hosts, or the file of one is missing: what they wait for it
    would count as transfer. A rate that no link of the device carries is taken away.
    """
    of = {one.source for one in group.waits}
    ranks = [one for one in told if one.source in of]
    links = {link_of(one.device) for one in ranks}
    link = links.pop() if len(links) == 1 else None
    if link is not None and not all(link.carries(one.bus_rate) for one in group.sizes):
        why = f"sizes or ranks of the calls are not as the files say: {link.name} does not carry so much"
        return replace(group, sizes=tuple(replace(one, bus_rate=0.0) for one in group.sizes), link=why)
    rated = [one for one in group.sizes if one.bus_rate > 0]
    if not rated:
        return group
    near = link if all(one.within_a_host for one in ranks) else None
    large = [one for one in rated if one.size >= LARGE]
    best = max(large or rated, key=lambda one: one.bus_rate)
    whole = near is not None and len(ranks) == group.size
    slow = near is not None and whole and bool(large) and far_below(near, best.bus_rate)
    said = _said(best, near) if any(one.device for one in ranks) else _at_best(best)  # a host's memory, or a network
    return replace(group, slow=slow, fits=whole, link=said)


def _said(one: SizedTransfer, link: Link | None) -> str:
    said = _at_best(one)
    if link is None:
        low, high = (units.byte_rate(rate) for rate in NETWORK)
        return f"{said}; what carries it the files do not say: between hosts {low} to {high} per device are usual"
    return (
        f"{said}, {units.share(one.bus_rate / link.rate)} of {link.name} ({units.byte_rate(link.rate)}, {link.source})"
    )


def _at_best(one: SizedTransfer) -> str:
    rate = units.byte_rate(one.bus_rate)
    return f"over the transfer alone {rate} on the bus at best ({one.kind}s of {units.size(one.size)})"
