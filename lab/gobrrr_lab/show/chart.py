"""Rows of an experiment over its axis: what was measured with its interval, and the curve that was predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from gobrrr.report.html.svg import WIDTH, line, svg, tag, text, title
from gobrrr_lab.measure.result import Row
from gobrrr_lab.show.text import figure_text, value

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 120, 40, 20, 60, 360
DOT, LETTER, LINE = 5, 8, 17
"""Radius, and width and height of a letter of a curve's name."""
FEWEST = 3
"""Points that make a curve."""
FILLS = ("phase0", "expected", "least", "phase4", "phase2", "phase6")
"""Classes of the dots' colours, one for each curve; the page's style has them."""


def curve(rows: Sequence[Row], axis: str) -> Markup:
    """On logarithmic axes, each series a curve of its own; empty where none has three rows of the first row's unit."""
    unit = rows[0].unit if rows else ""
    points = [row for row in rows if row.x and row.x > 0 and row.unit == unit and _above_zero(row)]
    curves: dict[str, list[Row]] = {}
    for row in points:
        curves.setdefault(row.series, []).append(row)
    if not axis or max(map(len, curves.values()), default=0) < FEWEST:
        return Markup()
    values = [v for row in points for v in (row.measured.low, row.measured.high, row.predicted or row.measured.value)]
    named = LETTER * max(map(len, curves))
    x = _Scale.over([row.x or 1.0 for row in points], LEFT, WIDTH - RIGHT - named)
    y = _Scale.over(values, HEIGHT - BOTTOM, TOP)
    drawn = [*_ends(points, values, x, y, unit)]
    for number, ours in enumerate(curves.values()):
        drawn += [*_predicted(ours, x, y), *_measured(ours, x, y, FILLS[number % len(FILLS)])]
    drawn += _names([(x(ours[-1].x or 1.0), y(ours[-1].measured.value), name) for name, ours in curves.items()])
    drawn.append(text(WIDTH - RIGHT, HEIGHT - 8, f"{axis} (dots: measured, line: predicted)", "end"))
    return svg(drawn, HEIGHT, f"What was measured over {axis}", "chart")


def _above_zero(row: Row) -> bool:
    """Whether it has a place on a logarithmic axis."""
    figures = (row.measured.low, row.measured.value, row.measured.high, row.predicted or 1.0)
    return all(0 < figure < math.inf for figure in figures)


class _Scale(NamedTuple):
    """From logarithms to a side of the picture."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Scale:
        low, high = math.log(min(values)), math.log(max(values))
        return cls(low, high if high > low else low + 1, start, end)

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (math.log(value) - self.low) / (self.high - self.low)


def _ends(points: Sequence[Row], values: Sequence[float], x: _Scale, y: _Scale, unit: str) -> Iterable[Markup]:
    yield line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "grid")
    yield line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "grid")
    for end in (min(values), max(values)):
        yield text(LEFT - 8, y(end) + 5, value(end, unit), "end")
    ordered = sorted(points, key=lambda row: row.x or 1.0)
    for row, side in ((ordered[0], "start"), (ordered[-1], "end")):
        yield text(x(row.x or 1.0), HEIGHT - BOTTOM + 22, f"{row.x:.4g}" if row.series else row.label, side)


def _predicted(points: Sequence[Row], x: _Scale, y: _Scale) -> Iterable[Markup]:
    known = [(x(row.x or 1.0), y(row.predicted)) for row in points if row.predicted]
    for (x1, y1), (x2, y2) in pairwise(known):
        yield line(x1, y1, x2, y2, "roof")


def _names(ends: Sequence[tuple[float, float, str]]) -> Iterable[Markup]:
    """Beside each curve's last dot, none over another: each at least a line below the one above it."""
    lowest = 0.0
    for x, y, name in sorted(ends, key=lambda end: end[1]):
        lowest = max(y + DOT, lowest + LINE)
        yield text(x + 2 * DOT, lowest, name, "start")


def _measured(points: Sequence[Row], x: _Scale, y: _Scale, fill: str) -> Iterable[Markup]:
    for row in points:
        at, figure = x(row.x or 1.0), row.measured
        yield line(at, y(figure.low), at, y(figure.high), "whisker")
        dot: dict[str, float | str] = {"cx": at, "cy": y(figure.value), "r": DOT, "class": fill}
        yield tag("circle", title(f"{row.label}: {figure_text(figure, row.unit)}"), dot)
