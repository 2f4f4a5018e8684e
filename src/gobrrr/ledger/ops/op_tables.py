"""Every op of the profiled steps, summed by op, by shape, by line and by module: four tables of the same self times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.launchers import time_launched
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.hot_paths import DEEPEST, inside_its_own
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model import WAYS
from gobrrr.ledger.model.op_tables import OpRow, OpTable
from gobrrr.ledger.ops.op_times import shapes_of
from gobrrr.ledger.ops.pricing import RowPrices
from gobrrr.ledger.steps.profiled_window import ProfiledWindow
from gobrrr.recording.model.call_tree import with_children
from gobrrr.recording.model.columns import numbered
from gobrrr.recording.model.facts import Span
from gobrrr.spans import Ints, within

Floats = npt.NDArray[np.float64]
MOST = 30
"""Rows of a table that are kept, those that take most; the others are one."""
SHORT = 5_000
"""ns of an op on the host up to which it has no rate: its time is the clock's, the profiler's and torch's own. Under
torch.profiler add_ to one element takes 3.4 us, mm of 2x2 4.1 us (medians of 3000, torch 2.13, a busy machine)."""


_Keys = tuple[tuple[npt.NDArray[Any], ...], Callable[[int], tuple[object, ...]]]
"""Columns that tell one key from another, and the key of a row."""


class _Sums(NamedTuple):
    """Sums of each group, or of one."""

    ops: Floats
    own: Floats
    total: Floats
    device: Floats
    device_total: Floats
    flops: Floats
    floor: Floats
    priced: Floats
    calls: Floats

    def of(self, which: Sequence[int] | int, steps: int) -> _Sums:
        """Return the sums of some groups, per step."""
        return _Sums(*(column[which] / steps for column in self))


@dataclass(frozen=True)
class _Columns:
    """Per row of HostOps: what is summed. `device`: all that it launched, copies, sets and collectives too;
    kernel_work.device_ops has kernels alone, which are held against its work."""

    device: Ints
    below: Ints
    """`device` of it and of all that it called."""
    flops: Floats
    floor: Floats
    priced: Floats
    """Part of the time that rates are of in ops whose work is known; by the row that answers for it."""
    owner: Ints


def op_tables(window: ProfiledWindow, priced: RowPrices, on_device: bool, most: int = MOST) -> tuple[OpTable, ...]:
    """By each of WAYS. `priced` is of the device's kernels where it works, else of the host's own time."""
    host, places = window.host, window.places
    if not np.any(host.is_op):
        return ()
    columns = _columns(window, priced, on_device)
    shapes = [*(shapes_of(window.trace, n) for n in range(len(window.trace.signatures))), ""]
    where = [place.where[0] if place.where else None for place in places.places]  # of a backward op its forward op's
    known = any(place.module for place in places.places)
    modules: dict[str, int] = {}
    module = [modules.setdefault(name, len(modules)) for name in (window.module if known else ())]
    keys: dict[str, _Keys] = {
        "op": ((host.ops.name,), lambda row: (host.name(row), "")),
        "shape": ((host.ops.name, host.ops.signature), lambda row: (host.name(row), shapes[host.ops.signature[row]])),
        "line": ((window.origin, host.phases), lambda row: (span.file, span.line, span.function)
                 if (span := where[window.origin[row]]) else (f"({host.phase[row]})",)),
        "module": ((np.array(module), host.phases), lambda row: (window.module[row] or f"({host.phase[row]})", "")),
    }  # fmt: skip
    missing = {"line": not any(where), "module": not known}
    return tuple(
        OpTable(by, why=f"{by}s were not recorded", on_device=on_device) if missing.get(by)
        else _table(by, keys[by], host, places, columns, on_device, most)
        for by in WAYS
    )  # fmt: skip


def _columns(window: ProfiledWindow, priced: RowPrices, on_device: bool) -> _Columns:
    host = window.host
    none = np.zeros(len(host), np.int64)
    device = time_launched(window.kernels, window.launcher, len(host)) if on_device else none
    owner = priced.owners
    time = np.where(priced.bounded[owner], device if on_device else host.own, 0).astype(float)
    below = with_children(device, host.parent) if on_device else device
    return _Columns(device, below, priced.flops, np.array(priced.floor, float), time, owner)


def _table(
    by: str, keys: _Keys, host: HostOps, places: Places, columns: _Columns, on_device: bool,
    most: int,
) -> OpTable:  # fmt: skip
    numbers: dict[tuple[object, ...], int] = {}
    told, key_of = keys
    rows, group = np.flatnonzero(host.is_op), np.full(len(host), -1, np.int64)
    number, first = numbered([column[rows] for column in told])
    group[rows] = np.array([numbers.setdefault(key_of(row), len(numbers)) for row in rows[first].tolist()])[number]
    sums = _sums(group, len(numbers), host, columns)
    if by == "module":
        numbers, sums = _with_outer(numbers, sums)
    sums = sums._replace(calls=_calls(by, numbers, sums, host, places))
    steps = host.num_steps
    order = np.lexsort((-sums.own, -sums.device if on_device else -sums.own))
    ranked = [int(each) for each in order if any(column[each] for column in sums[:5])]
    named = list(numbers)
    most_of = [_row(by, named[i], sums.of(i, steps), places, on_device) for i in ranked[:most]]
    rest = _Sums(*(column.sum() for column in sums.of(ranked[most:], steps)))
    others = _row("op", (f"{len(ranked) - most} others", ""), rest, places, on_device) if len(ranked) > most else None
    if others is not None:  # what one of them calls may be another one
        calls = others.calls if by in ("op", "shape") else None
        others = msgspec.structs.replace(others, total_ns=others.self_ns, device_total_ns=others.device_ns, calls=calls)
    return OpTable(by, tuple(most_of), others, max(0, len(ranked) - most), on_device=on_device)


def _calls(by: str, numbers: Iterable[tuple[object, ...]], sums: _Sums, host: HostOps, places: Places) -> Floats:
    """Return the calls: of a module those of its forward; of a line nobody counts them."""
    if by == "module":
        none = np.zeros(0, np.int64)
        return np.array([within(places.calls.get(str(name), none), host.ran).sum() for name, *_ in numbers], float)
    return np.zeros_like(sums.ops) if by == "line" else sums.ops


def _sums(group: Ints, count: int, host: HostOps, columns: _Columns) -> _Sums:
    """(count,) of each but the calls."""
    mine, owned = group >= 0, group[columns.owner]
    outermost = mine & ~inside_its_own(group, host.parent)  # whose total has them already
    # What a wrapper answers for lies in its group; of an annotation in none.
    owned = np.where(owned >= 0, owned, group)

    def by(groups: Ints, values: npt.NDArray[Any]) -> Floats:
        return np.bincount(groups + 1, values.astype(float), count + 1)[1:].astype(float)

    return _Sums(
        by(group, mine), by(group, host.own), by(group, host.ops.dur * outermost), by(group, columns.device),
        by(group, columns.below * outermost), by(group, columns.flops), by(owned, columns.floor * mine),
        by(owned, columns.priced * mine), np.zeros(count),
    )  # fmt: skip


def _with_outer(numbers: dict[tuple[object, ...], int], sums: _Sums) -> tuple[dict[tuple[object, ...], int], _Sums]:
    """Modules with those that hold them, which may run no op themselves; a total is of all below."""
    known = dict(numbers)
    for name, *_ in numbers:
        for outer in _outer(str(name)):
            known.setdefault((outer, ""), len(known))
    none = np.zeros(len(known) - len(numbers))
    found = _Sums(*(np.append(column, none) for column in sums))
    found = found._replace(total=found.own.copy(), device_total=found.device.copy())
    for key, number in numbers.items():
        for outer in _outer(str(key[0])):
            at = known[outer, ""]
            found.total[at] += sums.own[number]
            found.device_total[at] += sums.device[number]
    return known, found


def _outer(name: str) -> list[str]:
    """'a.b.c' -> ['a', 'a.b']."""
    parts = name.split(".")[:DEEPEST] if not name.startswith("(") else []
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _row(by: str, key: tuple[object, ...], sums: _Sums, places: Places, on_device: bool) -> OpRow:
    ops, own, total, device, device_total, flops, floor, time, calls = map(float, sums)
    told = floor < time and (on_device or time > SHORT * ops)
    where = Span(str(key[0]), int(str(key[1])), str(key[2])) if by == "line" and len(key) > 1 else None
    detail = places.types.get(str(key[0]), "") if by == "module" else str(key[1]) if by == "shape" else ""
    return OpRow(
        str(key[0]), ops, own, total, calls or None,
        device_ns=device if on_device else None, device_total_ns=device_total if on_device else None,
        flops_per_s=1e9 * flops / time if told and flops else None, of_peak=floor / time if told and floor else None,
        detail=detail, where=where,
    )  # fmt: skip
