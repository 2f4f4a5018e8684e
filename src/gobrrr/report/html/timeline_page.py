"""The timeline on the page: the chart, who is blamed while nothing runs, and what was joined or left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr import units
from gobrrr.recording.model.facts import Span
from gobrrr.report.html import charts
from gobrrr.report.html.timeline_chart import memory_chart, timeline_chart
from gobrrr.report.timeline.slices import Said, Slice
from gobrrr.report.timeline.timeline import CAUSES, Lane, Timeline

WORDS = {
    "op": "an op", "annotation": "an annotation", "wait": "a wait for data", "call": "a call to the device",
    "kernel": "a kernel", "copy": "a copy or a set", "communication": "communication", "line": "a line of yours",
}  # fmt: skip


def timeline(found: Timeline | None, mask: Callable[[str], str] = str) -> dict[str, Any]:
    """Chart, key, idle by cause and notes, with what is masked; nothing where there is no timeline."""
    if found is None:
        return {"chart": "", "memory": ""}
    found = _masked(found, mask)
    used = {piece.kind for lane in found.lanes for row in lane.rows for piece in row}
    return {
        "chart": timeline_chart(found), "number": found.number, "num_steps": found.num_steps,
        "ns": units.duration(found.ns), "joined": units.duration(found.joined_ns), "num_events": found.num_events,
        "left_out": found.left_out, "memory": memory_chart(found.memory, found.ns), "idle": _idle(found),
        "key": [(charts.swatch(f"slice k-{kind}"), words) for kind, words in WORDS.items() if kind in used],
    }  # fmt: skip


def _masked(found: Timeline, mask: Callable[[str], str]) -> Timeline:
    def piece(it: Slice) -> Slice:
        at = it.said.where
        where = Span(mask(at.file), at.line, mask(at.function)) if at else None
        return it._replace(said=Said(mask(it.said.name), mask(it.said.shapes), where))

    lanes = (Lane(mask(lane.name), tuple(tuple(map(piece, row)) for row in lane.rows)) for lane in found.lanes)
    return found if mask is str else found._replace(lanes=tuple(lanes))


def _idle(found: Timeline) -> list[tuple[Any, str, str, str]]:
    """Return idle time by its cause, the longest first: rows of shares()."""
    return [(charts.swatch(f"slice k-{cause}"), CAUSES[cause], units.duration(ns), units.share(ns / (found.ns or 1)))
            for cause, ns in sorted(found.idle, key=lambda each: -each[1]) if ns and cause in CAUSES]  # fmt: skip
