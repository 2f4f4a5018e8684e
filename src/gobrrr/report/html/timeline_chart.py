"""One step along the line of time as SVG: a row for each thread's depth, each stream, what is idle, and the bytes that
tensors held on the device. The page's script zooms into it; without it everything is there in one view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from gobrrr import units
from gobrrr.report.html.svg import WIDTH, line, number, svg, tag, text, title
from gobrrr.report.timeline.slices import Slice
from gobrrr.report.timeline.timeline import Lane, Timeline
from gobrrr.report.told.blocks import clipped
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
OVER, TALL, UNDER = 24, 130, 24
"""Heights over the chart of memory, of it, and under it."""
PARTS = 4  # parts between grid lines; proposed: quarters read at a glance; settled by reading levels off pages
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
        yield text(LEFT - 8, row.top + 12, clipped(row.lane, LANE), "end")
    for piece in row.slices:
        left, width = LEFT + scale * piece.start, scale * min(piece.busy_ns, piece.end - piece.start)
        width = max(LEAST, width - min(HAIRLINE, width / 4))
        kind = piece.kind if piece.kind in KINDS else "op"
        yield Markup('<rect x="{}" y="{}" width="{}" height="{}" class="slice k-{}"><title>{}</title></rect>').format(
            number(left), number(row.top), number(width), BAR, kind, plain(said(piece)))  # fmt: skip
        if (room := int((width - 6) / CHARACTER)) >= FEWEST:
            words = Markup('<text x="{}" y="{}" class="label">{}</text>')
            yield words.format(number(left + 3), number(row.top + 12), plain(clipped(_name(piece), room)))


def said(piece: Slice) -> str:
    """Return the words over a slice: 'mm, 1.20 ms, 8x16 16x4, train.py:41 in main', of several the longest."""
    at = f", {short(piece.said.where)}" if piece.said.where and piece.said.name else ""
    if piece.num > 1:
        took = f"{units.duration(piece.busy_ns)} in {units.duration(piece.end - piece.start)}"
        return f"{piece.num} events, {took}, the longest {_name(piece)}{at}"
    shapes = f", {clipped(piece.said.shapes, SHAPES)}" if piece.said.shapes else ""
    return f"{_name(piece)}, {units.duration(piece.busy_ns)}{shapes}{at}"


def _name(piece: Slice) -> str:
    if not piece.said.name:
        return short(piece.said.where) if piece.said.where else ""
    return clipped(piece.said.name.removeprefix("aten::"), NAME)


def memory_chart(points: Sequence[tuple[int, int]], ns: int) -> Markup:
    """(ns, bytes) as steps, from zero or the least to the most. Empty where nothing is held."""
    held = [num_bytes for _, num_bytes in points]
    if not held or max(held) <= min(0, *held):
        return Markup()
    low, high = min(0, *held), max(held)

    def x(at: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, ns)

    def y(num_bytes: float) -> float:
        return OVER + TALL * (high - num_bytes) / (high - low)

    drawn = []
    for part in range(PARTS + 1):
        level = low + (high - low) * part / PARTS
        drawn += [line(LEFT, y(level), WIDTH - RIGHT, y(level), "grid"),
                  text(LEFT - 8, y(level) + 5, units.size(level) if level else "0", "end")]  # fmt: skip
    path = f"M{number(x(points[0][0]))} {number(y(points[0][1]))}" + "".join(
        f"H{number(x(at))}V{number(y(num_bytes))}" for at, num_bytes in points[1:]
    )
    at, most = max(points, key=lambda point: point[1])
    said = title(f"{units.size(most)} at {units.duration(at)}")
    drawn.append(tag("path", title("held by tensors"), {"d": path, "class": "held"}))
    drawn.append(tag("circle", said, {"cx": x(at), "cy": y(most), "r": 5, "class": "peak"}))
    drawn.append(text(LEFT, OVER + TALL + UNDER - 4, "0", "start"))
    drawn.append(text(WIDTH - RIGHT, OVER + TALL + UNDER - 4, units.duration(ns), "end"))
    return svg(drawn, OVER + TALL + UNDER, f"Memory over the step: at most {units.size(most)}", "chart")
