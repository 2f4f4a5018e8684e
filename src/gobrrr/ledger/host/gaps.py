"""Main-thread time outside torch ops by the user line that ran, and the wait for a batch by the line that waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.hot_paths import Frames, Hot
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.ledger import HostGroup, LineGroup
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.trace import Ids
from gobrrr.spans import Flags, Ints, among, distinct, merged, parts, total, within
from gobrrr.words import LOADER

MAX_HOT = 8
"""Groups whose library functions are looked for: the longest."""


@dataclass(frozen=True)
class Gaps:
    """Stretches of the steps that no op and no wait for data covers, cut where place or annotation changes.

    `number` says which gap a piece is of; `traced` whether it begins with an event of the line log.
    """

    start: Ints
    end: Ints
    place: Ids
    phase: tuple[str, ...]
    number: Ints
    traced: Flags


def grouped(
    gaps: Gaps, lengths: Ints, weights: npt.NDArray[np.generic], host: HostOps, places: Places,
    hot: Callable[[Flags, Span], Hot],
) -> list[tuple[HostGroup, float]]:  # fmt: skip
    """The groups, most time first, each with the sums of its pieces' `lengths` and `weights` per step. `hot`: the
    library's path below a line in pieces, which are a mask."""
    phases = sorted(set(gaps.phase))
    at = {phase: number for number, phase in enumerate(phases)}
    number = gaps.place.astype(np.int64) * len(phases) + np.array([at[phase] for phase in gaps.phase], np.int64)
    keys, group = np.unique(number, return_inverse=True)
    ns = np.bincount(group, lengths.astype(float), len(keys)) / host.num_steps
    weighed = np.bincount(group, weights.astype(float), len(keys)) / host.num_steps
    longest = set(np.argsort(-ns)[:MAX_HOT].tolist())
    found = []
    for i, key in enumerate(keys.tolist()):
        where = places.places[key // len(phases)].where
        below = hot(group == i, where[0]) if i in longest and where else ()
        found.append((HostGroup(where, float(ns[i]), phases[key % len(phases)], hot=below), float(weighed[i])))
    return sorted(found, key=lambda pair: -pair[0].ns)


def find_gaps(host: HostOps, places: Places) -> Gaps:
    """All gaps of the profiled steps."""
    rows = _covering(host)
    begins, stops, before = _between(host, rows)
    inside = _cuts_inside(places.times, begins, stops)
    edges = np.concatenate((host.updates.ravel(), host.closures.ravel()))
    cuts = distinct(np.concatenate((begins, inside, _cuts_inside(edges, begins, stops))))
    number = np.searchsorted(begins, cuts, "right") - 1
    ends = np.minimum(np.append(cuts[1:], np.iinfo(np.int64).max), stops[number]) if len(cuts) else cuts
    place = places.at(cuts)
    around = np.array(_around(host, rows, before, places.known), object)
    updating = within(cuts, host.updates) & ~within(cuts, host.closures)
    logged = np.array(["backward" if p.backward else "forward" if p.module else None for p in places.places], object)
    phase = np.where(updating, "optimizer", around[number])  # by the line log, then by the annotation, then the ops
    phase = np.where((logged != None)[place], logged[place], phase)  # noqa: E711
    return Gaps(cuts, ends, place, tuple(phase.tolist()), number, among(cuts, inside))


def _covering(host: HostOps) -> Ints:
    """Rows that own their whole stretch: outermost ops, and the waits for data."""
    rows = []
    covered_until = -1
    starts, ends = host.ops.start.tolist(), (host.ops.start + host.ops.dur).tolist()
    for row, is_op in enumerate(host.is_op.tolist()):
        if starts[row] >= covered_until and (is_op or host.name(row).startswith(LOADER)):
            rows.append(row)
            covered_until = ends[row]
    return np.array(rows, np.int64)


def _between(host: HostOps, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Begin and end of what lies between the covering rows within each step, and the index of the row before it."""
    starts = host.ops.start[rows]
    ends = np.maximum.accumulate(starts + host.ops.dur[rows]) if len(rows) else starts
    begins, stops, before = [], [], []
    for begin, end in host.spans:
        first, last = np.searchsorted(starts, (begin, end))
        open_ = max(begin, ends[first - 1]) if first else begin
        begins.append(np.concatenate(([open_], ends[first:last])))
        stops.append(np.concatenate((starts[first:last], [end])))
        before.append(np.arange(first - 1, last))
    begin_, stop_ = np.concatenate(begins), np.concatenate(stops)
    real = stop_ > begin_
    return begin_[real], stop_[real], np.concatenate(before)[real]


def _cuts_inside(times: Ints, begins: Ints, stops: Ints) -> Ints:
    """Return the `times` that lie within a gap."""
    number = np.searchsorted(begins, times, "right") - 1
    return times[(number >= 0) & (times < stops[np.maximum(number, 0)])] if len(begins) else times[:0]


def _around(host: HostOps, rows: Ints, before: Ints, logged: bool) -> list[str]:
    """Per gap the phase that the ops around it tell: what leads to the loss is the loss. Without a line log a gap
    between two ops of one phase is of that phase too."""
    phases = ["", *(host.phase[row] for row in rows.tolist()), ""]
    found = []
    for index in before.tolist():
        one, other = phases[index + 1], phases[index + 2]
        if other == "loss" or (one, other) == ("loss", "backward"):
            found.append("loss")
        else:
            found.append(one if one == other and not logged and one in ("forward", "backward") else "other")
    return found


def data_lines(host: HostOps, places: Places, idle: Ints | None, frames: Frames) -> tuple[LineGroup, ...]:
    """The wait by the user's innermost line, where known, ns per step, most first; with a device while it idles."""
    waits = merged(_waits(host, bool(len(frames.name))))
    if not places.known or not len(waits):
        return ()
    cuts = distinct(np.concatenate((waits[:, 0], places.times[within(places.times, waits)])))
    ends = np.minimum(np.append(cuts[1:], waits[-1, 1]), waits[np.searchsorted(waits[:, 0], cuts, "right") - 1, 1])
    pieces = np.stack((cuts, ends), axis=1)
    lines: dict[tuple[Span, ...], list[int]] = defaultdict(list)
    for row, place in enumerate(places.at(cuts).tolist()):
        lines[places.places[place].where].append(row)
    found = []
    for where, rows in lines.items():
        mine = pieces[rows] if idle is None else parts(idle, pieces[rows])
        ns = total(mine) / host.num_steps
        if where and ns:
            found.append(LineGroup(where, ns, "data", hot=frames.hot(mine, where[0])))
    return tuple(sorted(found, key=lambda line: -line.ns))


def _waits(host: HostOps, at_all_times: bool) -> Ints:
    """(n, 2) begin and end. Where lines are known from ops alone, from its own first op: before was another line."""
    rows = np.flatnonzero(host.waits_for_data)
    starts, ends = host.ops.start[rows], (host.ops.start + host.ops.dur)[rows]
    if not at_all_times:
        ops = host.ops.start[host.is_op]
        starts = np.append(ops, np.iinfo(np.int64).max)[np.searchsorted(ops, starts)]
    spans = np.stack((np.maximum(starts, host.begin), ends), axis=1)
    return spans[spans[:, 1] > spans[:, 0]]
