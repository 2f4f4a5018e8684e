"""Op groups: calls of one op with the same shapes, phase and user line, priced against the machine's ceilings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.origins import chains, origins, recomputed
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.ledger.ops.pricing import Prices, RowPrices, row_prices
from gobrrr.ledger.work import work_of
from gobrrr.recording.model.columns import numbered
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import Signature, Trace
from gobrrr.recording.run_folder.dataflow_file import FATES, tensor_shapes
from gobrrr.recording.run_folder.fates import ANY, Fates
from gobrrr.recording.trace_files.categories import is_communication
from gobrrr.spans import Ints

LIGHT = ("elementwise", "reduction", "view")
ADJACENT = 2
"""Lines of one loop's body that a person wrote below each other."""
CACHE_LINE = 64
"""Bytes up to which work interrupts nothing: x * 2.0 makes a copy of its number."""


@dataclass(frozen=True)
class Calls:
    """The op groups of the window per step, for each how many ops it calls directly, and what each row must cost."""

    groups: list[OpGroup]
    children: list[float]
    priced: RowPrices


@dataclass(frozen=True)
class Grouping:
    """Which rows belong together: ops of one name, shapes, phase, place and enclosing ops. It depends on the tree of
    ops alone, so that one serves for every way of pricing them."""

    rows: Ints
    """Rows of ops, in the order in which they ran."""
    group: Ints
    """Group of each of `rows`; groups are numbered in the order of their first call."""
    first: Ints
    """The first row of each group."""
    origin: npt.NDArray[np.int32]
    chain: list[tuple[str, ...]]
    """Names around the ops of each group."""
    again: npt.NDArray[np.bool_]
    fate: npt.NDArray[np.float64]
    in_a_row: npt.NDArray[np.float64]
    """Value of each group, as OpGroup has it."""

    @classmethod
    def of(
        cls, host: HostOps, places: Places, trace: Trace, origin: npt.NDArray[np.int32] | None = None,
        fates: Fates | None = None,
    ) -> Grouping:  # fmt: skip
        """Group all ops; annotations have no group of their own. `origin`: as of origins(), where it is known;
        `fates`: the recording's."""
        origin = origins(host) if origin is None else origin
        (enclosing, names), again = chains(host), recomputed(host)
        rows = np.flatnonzero(host.is_op)
        fate = _fates(host, trace, fates or {})
        columns = (
            host.ops.name,
            host.ops.signature,
            host.phases,
            origin,
            enclosing,
            host.leaf,
            again,
            (1000 * fate).astype(int),
        )
        group, first = numbered([column[rows] for column in columns])
        first = rows[first]
        chain = [names[number] for number in enclosing[first].tolist()]
        in_a_row = _in_a_row(host, rows, group, first, origin, places, trace)
        return cls(rows, group, first, origin, chain, again, fate, in_a_row)

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Sum a value per row of HostOps, by group."""
        return np.bincount(self.group, values[self.rows].astype(float), len(self.first)).astype(np.float64)


def op_groups(
    host: HostOps, trace: Trace, places: Places, prices: Prices, dispatch_ns: float, updated: Mapping[str, float],
    grouping: Grouping | None = None, counts: npt.NDArray[np.bool_] | None = None,
) -> Calls:  # fmt: skip
    """All groups of the window, per step, in the order of their first call. `counts`: rows whose work does; or all."""
    by = grouping or Grouping.of(host, places, trace)
    children = by.sums(np.bincount(host.parent[host.parent >= 0], minlength=len(host)))
    calls, ns = np.bincount(by.group, minlength=len(by.first)), by.sums(host.own)
    priced = row_prices(host, trace, prices, updated)
    work = _work_sums(by, priced, counts)
    groups = [
        _group(host, by, trace, places, i, float(calls[i]), float(ns[i]), work[i],
               (calls[i] + children[i]) * dispatch_ns)
        for i in range(len(by.first))
    ]  # fmt: skip
    return Calls(groups, (children / host.num_steps).tolist(), priced)


class _Work(NamedTuple):
    """Least cost and work of the calls of one group over the window; no bound where nothing is modelled."""

    floor: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    bound: str | None = None
    elsewhere: bool = False


def _work_sums(by: Grouping, priced: RowPrices, counts: npt.NDArray[np.bool_] | None) -> list[_Work]:
    if not priced.owner:
        return [_Work()] * len(by.first)
    done = np.ones(len(priced.work), bool) if counts is None else counts
    floor, flops, moved = (by.sums(np.asarray(c) * done).tolist() for c in (priced.floor, priced.flops, priced.bytes))
    sums = zip(floor, flops, moved, strict=True)
    told = np.flatnonzero((priced.modelled & priced.bounded & done)[by.rows])
    groups, first = np.unique(by.group[told], return_index=True)
    bound = {
        group: priced.bound[row] for group, row in zip(groups.tolist(), by.rows[told[first]].tolist(), strict=True)
    }
    elsewhere = set(by.group[np.isin(by.rows, list(priced.elsewhere))].tolist())
    return [_Work(*each, bound.get(i), i in elsewhere) for i, each in enumerate(sums)]


def _fates(host: HostOps, trace: Trace, known: Fates) -> npt.NDArray[np.float64]:
    """The fate of each row, 0 where it has none: where a step has as many calls of its name, or of its name and shapes,
    as the steps that were looked at, the one at the same place in their order."""
    found = np.zeros(len(host))
    names = np.isin(host.ops.name, trace.ids(*{name for name, *_ in known}))
    step = np.searchsorted(host.spans[:, 0], host.ops.start, "right")
    calls: dict[tuple[int, Any], list[int]] = defaultdict(list)
    shapes = [tensor_shapes(signature.shapes) for signature in trace.signatures]
    rows = np.flatnonzero(names & host.is_op & (host.ops.signature >= 0)).tolist()
    for told in ([ANY] * len(shapes), shapes):
        for row in rows:
            of = told[int(host.ops.signature[row])]
            calls[int(step[row]), (host.name(row), of, host.phase[row] == "backward")].append(row)
    for (_, key), same in calls.items():
        flags = known.get(key, ())
        if len(flags) == len(same):
            found[same] = flags
    return found


def _in_a_row(
    host: HostOps, every: Ints, groups: Ints, first: Ints, origin: npt.NDArray[np.int32], places: Places, trace: Trace
) -> npt.NDArray[np.float64]:
    """Per group the calls that follow each other: no op of a line further off, no other step, no work between that is
    more than a pass over tensors. Ops inside ops are not asked."""
    parent = host.parent[every]
    outer = (parent < 0) | ~host.is_op[np.maximum(parent, 0)]
    rows, group = every[outer], groups[outer]
    if not len(rows):
        return np.ones(len(first))
    heavy = np.array([_interrupts(host, trace, row) for row in first.tolist()], bool)[groups]
    interrupts = np.zeros(len(rows), bool)
    interrupts[np.searchsorted(rows, every[heavy], "right") - 1] = True
    files: dict[str, int] = {}
    lines = [place.where[0].place if place.where else ("", 0) for place in places.places]
    file = np.array([files.setdefault(name, len(files)) for name, _ in lines], np.int64)[origin[rows]]
    line = np.array([number for _, number in lines], np.int64)[origin[rows]]
    step = np.searchsorted(host.spans[:, 0], host.ops.start[rows], "right")
    apart = (np.diff(file) != 0) | (np.abs(np.diff(line)) > ADJACENT) | (np.diff(step) != 0)
    run = np.cumsum(np.concatenate(([False], apart | interrupts[1:] | interrupts[:-1])))
    order = np.argsort(group, kind="stable")  # in each group runs keep their order
    new = np.concatenate(([True], (np.diff(group[order]) != 0) | (np.diff(run[order]) != 0)))
    times = np.bincount(group[order][new], minlength=len(first))
    return np.maximum(1.0, np.bincount(group, minlength=len(first)) / np.maximum(times, 1))


def _interrupts(host: HostOps, trace: Trace, row: int) -> bool:
    """Whether an op is known to do more than pass over its tensors."""
    number = int(host.ops.signature[row])
    if number < 0:
        return False
    said = trace.signatures[number]
    work = work_of(host.name(row), said.shapes, said.dtypes, said.concrete, said.strides)
    return work is not None and work.kind not in LIGHT and work.bytes > CACHE_LINE


def _group(
    host: HostOps, by: Grouping, trace: Trace, places: Places, group: int, calls: float, ns: float, work: _Work,
    dispatch_ns: float,
) -> OpGroup:  # fmt: skip
    """A group per step. Of its self time at most a dispatch per call, and one per op that it calls, is torch's own."""
    row, steps = int(by.first[group]), host.num_steps
    fate = float(by.fate[row])
    number = int(host.ops.signature[row])
    signature = trace.signatures[number] if number >= 0 else None
    counted = work.bound is not None
    shapes = _together(signature) if is_communication(host.name(row)) else _shapes(signature)
    return OpGroup(
        host.name(row), shapes, signature.dtypes if signature else (), _shapes(signature, "strides"),
        signature.concrete if signature else (), host.phase[row], _where(host, by, places, row),
        calls / steps, ns / steps, work.floor / steps, max(0.0, float(min(ns - work.floor, dispatch_ns))) / steps,
        work.flops / steps if counted else None, work.bytes / steps if counted else None, work.bound, by.chain[group],
        row, bool(host.leaf[row]), bool(by.again[row]), FATES[int(fate)],
        fate if 0 < fate < 1 else 1.0,
        work.elsewhere, float(by.in_a_row[group]),
    )  # fmt: skip


def _where(host: HostOps, by: Grouping, places: Places, row: int) -> tuple[Span, ...]:
    """Its user lines. What runs again in backward belongs to the line that asked for it (a call of checkpoint): the
    node's lines without those that are inside of the recomputation."""
    origin = places.places[int(by.origin[row])].where
    if not by.again[row]:
        return origin
    node = row
    while node >= 0 and by.again[node]:
        node = int(host.parent[node])
    around = len(places.places[int(host.place[node])].where) if node >= 0 else 0
    inside = len(places.places[int(host.place[row])].where) - around
    return origin[max(0, inside) :] or origin


def _shapes(signature: Signature | None, field: str = "shapes") -> tuple[tuple[int, ...], ...]:
    """Shapes with lists of tensors left out as (): OpGroup holds plain shapes."""
    found = getattr(signature, field) if signature is not None else ()
    return tuple(tuple(s) if _plain(s) else () for s in found)


def _together(signature: Signature | None) -> tuple[tuple[int, ...], ...]:
    """Shapes with each list of tensors as one of as many elements: a collective sends them one behind the other."""
    return tuple((_elements(s),) if s and not _plain(s) else s for s in (signature.shapes if signature else ()))


def _plain(shape: Any) -> bool:
    return all(isinstance(n, int) for n in shape)


def _elements(shapes: Any) -> int:
    """Count the elements of all tensors in lists of lists; anything in them that is no shape counts nothing."""
    if _plain(shapes):
        return prod(shapes)
    return sum(_elements(each) for each in shapes if isinstance(each, tuple))
