"""Where in a profiled step the time of a finding lies: stretches that are drawn as its slices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gobrrr.ledger.steps.profiled_window import ProfiledWindow
from gobrrr.recording.model.trace import COMMUNICATION, MEMCPY
from gobrrr.report.timeline.timeline import all_steps
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.spans import Ints, as_spans, merged

NEAR = 0.005
"""Share of the step up to which what lies between two stretches of one finding is drawn as part of it."""
MOST = 100
"""Stretches of one finding, the longest: a line that runs a thousand times is one thing to look at."""
WAITS, LINE, CAUSE, KIND = (
    "where the loop waits for its batch", "where its line runs on the host", "where nothing runs for its cause",
    "where the device does it",
)  # fmt: skip
CAUSES = {"dispatch": "launch"}
"""Cause of idle time by the account that it is in, where the words differ."""
NOWHERE = "no place in time: over the whole step"


class Place(NamedTuple):
    """(n, 2) begin and end on the trace's clock, and by what they were found."""

    spans: Ints
    said: str


def place_of(finding: Finding, window: ProfiledWindow) -> Place:
    """In the step of median length; all of it where nothing is known that is nearer."""
    begin, end = window.spans[window.median].tolist()
    ways = () if is_doubt(finding) else (
        (WAITS, _waits(window) if finding.bound == "data" else None), (KIND, _device(finding, window)),
        (LINE, _line(finding, window)), (CAUSE, _cause(finding, window)),
    )  # fmt: skip
    for said, spans in ways:
        if spans is not None and len(found := _within(spans, begin, end)):
            return Place(_joined(found, end - begin), said)
    return Place(np.array([[begin, end]], np.int64), NOWHERE)


def _waits(window: ProfiledWindow) -> Ints:
    ops, waits = window.host.ops, window.host.waits_for_data
    return np.stack((ops.start[waits], (ops.start + ops.dur)[waits]), axis=1)


def _device(finding: Finding, window: ProfiledWindow) -> Ints | None:
    """Collectives and copies are told apart by what the device does."""
    kind = {"communication": COMMUNICATION, "transfer": MEMCPY}.get(finding.bound)
    kernels = window.trace.kernels
    rows = kernels.take(kernels.kind == kind) if kind is not None else kernels.take(np.zeros(0, np.int64))
    return as_spans(rows.start, rows.dur)


def _line(finding: Finding, window: ProfiledWindow) -> Ints | None:
    """Ops of its innermost line, those of its backward too, and the moments at which the line runs."""
    if not finding.where:
        return None
    wanted = finding.where[0].place
    has = np.array([any(span.place == wanted for span in each.where) for each in window.places.places], bool)
    host, places = window.host, window.places
    ops = host.is_op & has[window.origin]
    found = np.stack((host.ops.start[ops], (host.ops.start + host.ops.dur)[ops]), axis=1)
    if not places.known:
        return found
    runs = np.flatnonzero(has[places.states[:-1]])
    return np.concatenate((found, np.stack((places.times[runs], places.times[runs + 1]), axis=1)))


def _cause(finding: Finding, window: ProfiledWindow) -> Ints | None:
    """While nothing runs, what is blamed for it."""
    stretch = all_steps(window)
    track, zero = stretch.idle_pieces(), stretch.begin
    causes = {CAUSES.get(account, account) for account, _ in finding.lies[:1]}
    rows = np.array([kind in causes for kind in track.kind], bool)
    return zero + np.stack((track.start[rows], track.end[rows]), axis=1) if rows.any() else None


def _within(spans: Ints, begin: int, end: int) -> Ints:
    found: Ints = np.clip(spans, begin, end)
    return merged(found)


def _joined(spans: Ints, length: int) -> Ints:
    """With what lies close together as one, the longest in order of time."""
    apart = np.concatenate(([True], spans[1:, 0] - spans[:-1, 1] > NEAR * length))
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(spans)) - 1
    joined = np.stack((spans[first, 0], spans[last, 1]), axis=1)
    longest = np.argsort(joined[:, 0] - joined[:, 1], kind="stable")[:MOST]
    found: Ints = joined[np.sort(longest)]
    return found
