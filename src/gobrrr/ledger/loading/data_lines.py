"""At which line of a trace does the loop wait for its batch, and in which library function is it meanwhile?"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.idle import Idle, merged
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.hot_paths import Frames
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.ledger import LineGroup
from gobrrr.ledger.steps.step_windows import within
from gobrrr.recording.model.facts import Span

Ints = npt.NDArray[np.int64]


def data_lines(host: HostOps, places: Places, idle: Idle | None, frames: Frames) -> tuple[LineGroup, ...]:
    """The wait by the user's innermost line, ns per step, most first; with a device only while it idles. Empty where no
    line is known."""
    waits = merged(_waits(host, bool(len(frames.name))))
    if not places.known or not len(waits):
        return ()
    cuts = np.unique(np.concatenate((waits[:, 0], places.times[within(places.times, waits)])))
    ends = np.minimum(np.append(cuts[1:], waits[-1, 1]), waits[np.searchsorted(waits[:, 0], cuts, "right") - 1, 1])
    pieces = np.stack((cuts, ends), axis=1)
    lines: dict[tuple[Span, ...], list[int]] = defaultdict(list)
    for row, place in enumerate(places.at(cuts).tolist()):
        lines[places.places[place].where].append(row)
    found = []
    for where, rows in lines.items():
        mine = pieces[rows] if idle is None else idle.parts(pieces[rows])
        ns = float((mine[:, 1] - mine[:, 0]).sum()) / host.num_steps
        if where and ns:
            found.append(LineGroup(where, ns, "data", hot=frames.hot(mine, where[0])))
    return tuple(sorted(found, key=lambda line: -line.ns))


def _waits(host: HostOps, at_all_times: bool) -> Ints:
    """(n, 2) begin and end. Where lines are known from ops alone, from a wait's own first op: what was before is of
    another line."""
    rows = np.flatnonzero(host.waits_for_data)
    starts, ends = host.ops.start[rows], (host.ops.start + host.ops.dur)[rows]
    if not at_all_times:
        ops = host.ops.start[host.is_op]
        starts = np.append(ops, np.iinfo(np.int64).max)[np.searchsorted(ops, starts)]
    spans = np.stack((np.maximum(starts, host.begin), ends), axis=1)
    return spans[spans[:, 1] > spans[:, 0]]
