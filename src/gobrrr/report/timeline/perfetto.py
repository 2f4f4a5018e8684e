"""Recordings as a trace for ui.perfetto.dev: one process for each rank, with the findings as slices at their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

import numpy as np

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.ledger.steps.profiled_window import ProfiledWindow, profiled_window
from gobrrr.recording.model.trace import COMMUNICATION, MEMCPY
from gobrrr.recording.run_folder.run import Recording
from gobrrr.report.forms.formats import View
from gobrrr.report.timeline.perfetto_window import WindowEvents, line_of
from gobrrr.report.timeline.timeline import all_steps
from gobrrr.report.timeline.trace_events import Process, arguments, document, lanes
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.report import Report
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.spans import Ints, as_spans, merged

Rank = tuple[Report | None, Recording | None]
BEFORE = 60 * 10**9
"""ns of the file before the first rank's begin: other ranks begin before it, and no time is below zero."""
APART = 3600 * 10**9
"""ns from the first rank's begin beyond which another's clock is another one."""
MOST_STEPS = 100_000  # first steps drawn; proposed: bounds the file; settled by the time a viewer takes for more
WHOLE = "no step was profiled, or its trace is not at hand: steps and findings only"
NO_STEP = GobrrrError("there is no step to draw", "record more steps: gobrrr run")


def drawn(report: Report | None, view: View) -> Iterator[bytes]:
    """The recordings of view.ranks with their findings, or what a report alone says, in pieces. Raises GobrrrError
    where not even the length of a step is known."""
    if report is None or (isinstance(view.ranks, Sequence) and len(view.ranks) > 1):
        return to_perfetto(view.ranks, view.mask)
    recording = next((recording for _, recording in view.ranks), None)
    return to_perfetto([(report, recording)], view.mask, alone=True)


def to_perfetto(ranks: Iterable[Rank], mask: Callable[[str], str] = str, alone: bool = False) -> Iterator[bytes]:
    """Ranks are taken one after another: memory does not grow with their number, but for what holds them."""
    return _File(mask, alone).pieces(ranks)


class _File:
    """A file while it is written: numbers that all processes share, and the time that is its zero."""

    def __init__(self, mask: Callable[[str], str], alone: bool) -> None:
        self.mask, self.alone = mask, alone
        self.tids, self.flows = count(1), count(1)
        self.zero: int | None = None

    def pieces(self, ranks: Iterable[Rank]) -> Iterator[bytes]:
        given = iter(ranks)
        first = next(given, None)
        if first is None:
            raise NO_STEP
        report = first[0]
        said = {"made by": "gobrrr", "verdict": self.mask(report.verdict.sentence) if report else ""}
        events = chain.from_iterable(self._rank(pid, *rank) for pid, rank in enumerate(chain([first], given), 1))
        yield from document(events, said)

    def _rank(self, pid: int, report: Report | None, recording: Recording | None) -> Iterator[str]:
        window = profiled_window(recording) if recording is not None else None
        steps = [] if window else _steps(report, recording)
        if not window and not steps:
            if self.alone:
                raise NO_STEP
            process = Process(pid, 0, self.tids, self.mask)
            yield from (*process.named(self._name(pid, report, recording)), process.label(NO_STEP.message))
            return
        begin = window.begin if window else steps[0][0]
        zero, note = self._zero(begin)
        process = Process(pid, zero, self.tids, self.mask)
        yield from process.named(self._name(pid, report, recording))
        if window is None:
            yield from _without_window(process, report, steps)
        else:
            places = [(finding, place_of(finding, window)) for finding in report.findings] if report else []
            yield from _findings(process, report, [(each, place.spans.tolist(), place.said) for each, place in places])
            yield from WindowEvents(window, process, self.flows)
        room = f"{process.dropped} events have no room" if process.dropped else ""
        if labels := "; ".join(filter(None, (note, "" if window else WHOLE, room))):
            yield process.label(labels)

    def _zero(self, begin: int) -> tuple[int, str]:
        """Return this rank's clock at the file's zero, and a note where it is another clock than the first rank's."""
        before = 0 if self.alone else BEFORE
        if self.zero is None:
            self.zero = begin - before
        if 0 <= begin - self.zero < APART:
            return self.zero, ""
        return begin - before, "its clock is another one: it begins where the first does"

    def _name(self, pid: int, report: Report | None, recording: Recording | None) -> str:
        rank = report.rank if report else recording.start.rank if recording else None
        number = f"rank {rank}" if rank is not None else "" if self.alone else f"file {pid}"
        process = f"pid {recording.start.pid}" if recording and recording.start.pid else ""
        return " ".join(filter(None, (number, f"({process})" if number and process else process))) or "the program"


Step = tuple[int, int, int, str]
"""Begin, end, wait for data, and what it is called."""


Placed = tuple[Finding, Iterable[tuple[int, int]], str]
"""A finding, the stretches at which it is drawn, and by what they were found."""


def _steps(report: Report | None, recording: Recording | None) -> list[Step]:
    """Every step of the main loop; without a recording one of median length; none where not even that is known."""
    main = recording.main if recording is not None else None
    if main is not None and main.steps:
        many = main.steps[:MOST_STEPS]
        return [(step.start, step.end, step.wait, f"step {i}") for i, step in enumerate(many, 1)]
    if report is not None and report.step.plain_wall_ns > 0:
        return [(0, report.step.plain_wall_ns, 0, "the median step")]
    return []


def _without_window(process: Process, report: Report | None, steps: list[Step]) -> Iterator[str]:
    """Findings over the step of median length, and the steps."""
    middle = sorted(steps, key=lambda step: step[1] - step[0])[(len(steps) - 1) // 2]
    whole = [middle[:2]]
    yield from _findings(process, report, [(finding, whole, NOWHERE) for finding in report.findings] if report else [])
    tid, head = process.track("steps")
    yield from head
    for begin, end, wait, name in steps:
        args = arguments(process, {"data wait": units.duration(wait) if wait else ""})
        yield process.slice(tid, begin, end, process.text(name), args)


def _findings(process: Process, report: Report | None, placed: list[Placed]) -> Iterator[str]:
    """Each at its place; where two take each other's place, the later one is a track below."""
    if report is None:
        return
    pieces = [(int(a), int(b), finding, said) for finding, spans, said in placed for a, b in spans]
    pieces.sort(key=lambda piece: (piece[0], -piece[1]))
    tracks, head = process.tracks("findings", lanes([p[0] for p in pieces], [p[1] for p in pieces]))
    yield from head
    for (begin, end, finding, said), tid in zip(pieces, tracks, strict=True):
        if tid >= 0:
            name = process.text(f"{finding.code} {finding.name}")
            yield process.slice(tid, begin, end, name, _told(process, finding, said, report))


def _told(process: Process, finding: Finding, said: str, report: Report) -> str:
    saving, wall = finding.saving, report.step.whole_ns(finding.rare)
    where = finding.where[0] if finding.where else None
    return arguments(process, {
        "code": finding.code, "severity": finding.severity, "sentence": finding.message, "advice": finding.advice,
        "expected back, ms per step": round(saving.expected_ns / 1e6, 6),
        "at most, ms per step": round(saving.ceiling_ns / 1e6, 6),
        "expected back, of the step": units.share(saving.expected_ns / wall) if wall else "",
        **line_of(where), "remedies": ", ".join(finding.remedies),
        "place": said,
    })  # fmt: skip


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
        if spans is not None and len(found := merged(np.clip(spans, begin, end))):
            return Place(_joined(found, end - begin), said)
    return Place(np.array([[begin, end]], np.int64), NOWHERE)


def _waits(window: ProfiledWindow) -> Ints:
    waits = window.host.ops.take(window.host.waits_for_data)
    return as_spans(waits.start, waits.dur)


def _device(finding: Finding, window: ProfiledWindow) -> Ints | None:
    """Collectives and copies are told apart by what the device does."""
    kind = {"communication": COMMUNICATION, "transfer": MEMCPY}.get(finding.bound)
    if kind is None:
        return None
    rows = window.trace.kernels.take(window.trace.kernels.kind == kind)
    return as_spans(rows.start, rows.dur)


def _line(finding: Finding, window: ProfiledWindow) -> Ints | None:
    """Ops of its innermost line, those of its backward too, and the moments at which the line runs."""
    if not finding.where:
        return None
    wanted = finding.where[0].place
    has = np.array([any(span.place == wanted for span in each.where) for each in window.places.places], bool)
    host, places = window.host, window.places
    ops = host.ops.take(host.is_op & has[window.origin])
    found = as_spans(ops.start, ops.dur)
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


def _joined(spans: Ints, length: int) -> Ints:
    """With what lies close together as one, the longest in order of time."""
    apart = np.concatenate(([True], spans[1:, 0] - spans[:-1, 1] > NEAR * length))
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(spans)) - 1
    joined = np.stack((spans[first, 0], spans[last, 1]), axis=1)
    longest = np.argsort(joined[:, 0] - joined[:, 1], kind="stable")[:MOST]
    found: Ints = joined[np.sort(longest)]
    return found
