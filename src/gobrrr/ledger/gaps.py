"""Main-thread time outside torch ops, split by the user line that ran."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.hostops import HostOps
from gobrrr.ledger.model import HostGroup
from gobrrr.ledger.places import Places

Ints = npt.NDArray[np.int64]


def host_groups(host: HostOps, places: Places, num_steps: int) -> list[HostGroup]:
    """Per step: every stretch of the window that no op covers and that does not wait for data, by place and phase."""
    sums: dict[tuple[int, str], float] = defaultdict(float)
    for begin, end, phase in zip(*_gaps(host), strict=True):
        for start, stop, place in _pieces(begin, end, places):
            sums[(place, _phase(phase, places, place))] += stop - start
    return [
        HostGroup(places.places[place].where, ns / num_steps, phase)
        for (place, phase), ns in sorted(sums.items(), key=lambda item: -item[1])
        if ns > 0
    ]


def _gaps(host: HostOps) -> tuple[list[int], list[int], list[str]]:
    """Begin, end and phase of all stretches between top-level ops; inside a loader's wait there is none."""
    covers = _covering(host)
    starts, ends = host.ops.start[covers], (host.ops.start + host.ops.dur)[covers]
    begins = np.concatenate(([host.begin], np.maximum.accumulate(ends))) if len(ends) else np.array([host.begin])
    stops = np.concatenate((starts, [host.end]))
    real = stops > begins
    after = np.searchsorted(host.ops.start, begins, "right") - 1
    phases = [_annotated(host, int(row), int(begin)) for row, begin in zip(after, begins, strict=True)]
    return begins[real].tolist(), stops[real].tolist(), [p for p, keep in zip(phases, real, strict=True) if keep]


def _covering(host: HostOps) -> npt.NDArray[np.int64]:
    """Rows that own their whole stretch: outermost ops, and the waits for data."""
    rows = []
    covered_until = 0
    for row in range(len(host)):
        start = int(host.ops.start[row])
        if start < covered_until:
            continue
        if host.is_op[row] or host.name(row).startswith("enumerate(DataLoader)"):
            rows.append(row)
            covered_until = start + int(host.ops.dur[row])
    return np.array(rows, np.int64)


def _annotated(host: HostOps, row: int, time: int) -> str:
    """The phase at a time between ops: that of an annotation which still runs (the optimizer's), else by place."""
    while row >= 0:
        if not host.is_op[row] and int(host.ops.start[row] + host.ops.dur[row]) > time:
            return host.phase[row]
        row = int(host.parent[row])
    return ""


def _phase(annotated: str, places: Places, place: int) -> str:
    if annotated:
        return annotated
    here = places.places[place]
    return "backward" if here.backward else "forward" if here.module else "other"


def _pieces(begin: int, end: int, places: Places) -> list[tuple[int, int, int]]:
    """A stretch cut where the place changes."""
    first = int(np.searchsorted(places.times, begin, "right"))
    last = int(np.searchsorted(places.times, end, "left"))
    cuts = [begin, *places.times[first:last].tolist(), end]
    states = [int(places.states[first - 1]) if first else 0, *places.states[first:last].tolist()]
    return [(a, b, s) for a, b, s in zip(cuts, cuts[1:], states, strict=False) if b > a]
