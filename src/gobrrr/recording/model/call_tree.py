"""Which event called which, and how long was each at work itself?

Profilers give intervals, not a tree: an event's parent is the innermost one of its thread that was open when it
began. Clocks of two sources (torch's ops and Python frames) disagree by microseconds, so a child may outlive its
parent. Self time is therefore not a difference of durations but a share of the line of time: every moment belongs to
the event that began last among those still open. It is never negative, and the self times of a thread sum to the
union of its events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.recording.model.trace import Ids, Ints

NEVER = 1 << 63  # ns, after all that 64 bits hold


@dataclass(frozen=True, eq=False)
class Nesting:
    """The tree over a table's rows."""

    parent: Ids
    """Row of the parent, -1 for a root. A parent stands before its children."""
    self_time: Ints
    """ns in which the event was open and none that began later was."""
    num_overlaps: int
    """Events that outlive their parent: where they are many, the trace's clocks are not to be trusted."""


def parents(start: Ints, dur: Ints) -> Ids:
    """Row of the parent of every event of one thread, -1 for a root; events as in a Trace, sorted by start."""
    return nest(start, dur).parent


def nest(start: Ints, dur: Ints) -> Nesting:
    """The tree over the events of one thread, sorted by start, the longer first; times in ns, none negative.

    An event that begins where another ends is not its child, so one that lasts no time has no children.
    """
    if len(start) and ((np.diff(start) < 0).any() or dur.min() < 0):
        raise ValueError("events must be sorted by start, with no negative duration")
    begin, end = start.tolist(), (start + dur).tolist()
    parent, own = [-1] * len(begin), [0] * len(begin)
    num_overlaps = _sweep(begin, end, parent, own)
    return Nesting(np.array(parent, np.int32), np.array(own, np.int64), num_overlaps)


def _sweep(begin: list[int], end: list[int], parent: list[int], own: list[int]) -> int:
    """Go along the line of time with the stack of open events; fill `parent` and `own`, return the overlaps."""
    stack: list[int] = []
    top, until = -1, NEVER
    now = num_overlaps = 0
    for row, (at, stop) in enumerate(zip([*begin, NEVER - 1], [*end, NEVER], strict=True)):  # the last one closes all
        while until <= at:
            if until > now:
                own[top] += until - now
                now = until
            top = stack.pop()
            until = end[top] if top >= 0 else NEVER
        if top >= 0:
            parent[row] = top
            own[top] += at - now
            num_overlaps += stop > until
        now = at
        stack.append(top)
        top, until = row, stop
    return num_overlaps


def nest_threads(start: Ints, dur: Ints, thread: Ids) -> Nesting:
    """As `nest`, over the events of many threads in one table sorted by start."""
    parent = np.full(len(start), -1, np.int32)
    own = np.zeros(len(start), np.int64)
    num_overlaps = 0
    order = np.argsort(thread, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1):
        part = nest(start[rows], dur[rows])
        parent[rows] = np.where(part.parent >= 0, rows[part.parent], -1)
        own[rows] = part.self_time
        num_overlaps += part.num_overlaps
    return Nesting(parent, own, num_overlaps)


def with_children(values: Ints, parent: Ids) -> Ints:
    """Each event's value with those of all below it; a parent stands before its children."""
    whole: list[int] = values.tolist()
    for row, above in zip(range(len(whole) - 1, -1, -1), parent[::-1].tolist(), strict=True):
        if above >= 0:
            whole[above] += whole[row]
    return np.array(whole, np.int64)
