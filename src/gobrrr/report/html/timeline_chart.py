"""One step along the line of time as SVG: a row for each thread's depth, each stream, and what is idle. The page's
script zooms into it; without it everything is there in one view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from markupsafe import Markup

from gobrrr import units
from gobrrr.report.html.svg import WIDTH, line, number, svg, tag, text
from gobrrr.report.timeline.slices import Slice
from gobrrr.report.timeline.timeline import Lane, Timeline
from gobrrr.rules.verdict.place import short
from gobrrr.system.escape import plain

LEFT, RIGHT, TOP, BOTTOM = 150, 10, 30, 6
ROW, BAR, APART = 17, 15, 9
"""Heights of a row and of what is drawn in it, and the room between two lanes."""
TICKS = 5  # ticks of the time axis, both ends included; proposed: words stay apart; settled on a narrow screen
LEAST, HAIRLINE = 0.3, 0.4
"""Width of the narrowest bar, and what is left free between two."""
CHARACTER = 7.6
"""Width of a character in a bar: a name is written where enough of it has room."""
FEWEST, NAME, SHAPES, LANE = 4, 70, 40, 18
"""Characters: of a name at least in a bar; of a name, of shapes and of a lane's name at most."""
KINDS = frozenset(("line", "op", "annotation", "wait", "call", "kernel", "copy", "communication", "data_wait", "sync",
                   "allocator", "launch", "host", "stalled"))  # fmt: skip
"""That have a look of their own in the style sheet."""


class _Row(NamedTuple):
    lane: str
    top: float
    slices: tuple[Slice, ...]


def timeline_chart(found: Timeline) -> Markup:
    """The chart."""
    rows = list(_rows(found.lanes))
    height = (rows[-1].top if rows else TOP) + ROW + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / max(1, found.ns)
    drawn = [_ticks(found.ns, height), *(part for row in rows for part in _drawn(row, scale))]
    data = {"left": LEFT, "width": WIDTH - LEFT - RIGHT, "ns": found.ns}
    return svg(drawn, height, f"Step {found.number} of {found.num_steps} along the line of time", "chart timeline",
               data=data)  # fmt: skip


def _rows(lanes: Iterable[Lane]) -> Iterator[_Row]:
    """Every row with its place; a lane's name stands at its first."""
    top = float(TOP)
    for lane in lanes:
        for depth, row in enumerate(lane.rows):
            yield _Row(lane.name if depth == 0 else "", top, row)
            top += ROW
        top += APART


def _ticks(ns: int, height: float) -> Markup:
    drawn = []
    for part in range(TICKS):
        at = LEFT + (WIDTH - LEFT - RIGHT) * part / (TICKS - 1)
        words = units.duration(ns * part / (TICKS - 1)) if part else "0"
        anchor = "end" if part == TICKS - 1 else "middle" if part else "start"
        drawn += [line(at, TOP - 8, at, height, "grid"), text(at, TOP - 13, words, anchor)]
    return tag("g", Markup().join(drawn), {"class": "ticks"})


def _drawn(row: _Row, scale: float) -> Iterator[Markup]:
    if row.lane:
        yield text(LEFT - 8, row.top + 12, _clipped(row.lane, LANE), "end")
    for piece in row.slices:
        left, width = LEFT + scale * piece.start, scale * min(piece.busy_ns, piece.end - piece.start)
        width = max(LEAST, width - min(HAIRLINE, width / 4))
        kind = piece.kind if piece.kind in KINDS else "op"
        yield Markup('<rect x="{}" y="{}" width="{}" height="{}" class="slice k-{}"><title>{}</title></rect>').format(
            number(left), number(row.top), number(width), BAR, kind, plain(said(piece)))  # fmt: skip
        if (room := int((width - 6) / CHARACTER)) >= FEWEST:
            words = Markup('<text x="{}" y="{}" class="label">{}</text>')
            yield words.format(number(left + 3), number(row.top + 12), plain(_clipped(_name(piece), room)))


def said(piece: Slice) -> str:
    """Return the words over a slice: 'mm, 1.20 ms, 8x16 16x4, train.py:41 in main', of several the longest."""
    at = f", {short(piece.said.where)}" if piece.said.where and piece.said.name else ""
    if piece.num > 1:
        took = f"{units.duration(piece.busy_ns)} in {units.duration(piece.end - piece.start)}"
        return f"{piece.num} events, {took}, the longest {_name(piece)}{at}"
    shapes = f", {_clipped(piece.said.shapes, SHAPES)}" if piece.said.shapes else ""
    return f"{_name(piece)}, {units.duration(piece.busy_ns)}{shapes}{at}"


def _name(piece: Slice) -> str:
    if not piece.said.name:
        return short(piece.said.where) if piece.said.where else ""
    return _clipped(piece.said.name.removeprefix("aten::"), NAME)


def _clipped(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
