"""Rows of an experiment over its axis: what was measured with its interval, and the curve that was predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from gobrrr.lab.model import Row
from gobrrr.lab.text import figure_text, value
from gobrrr.report.svg import WIDTH, line, svg, tag, text, title

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 120, 40, 20, 60, 360
DOT = 5
FEWEST = 3
"""Points that make a curve."""


def curve(rows: Sequence[Row], axis: str) -> Markup:
    """On logarithmic axes; empty where fewer than three rows of one unit stand on the axis."""
    unit = rows[0].unit if rows else ""
    points = [row for row in rows if row.x and row.x > 0 and row.measured.low > 0 and row.unit == unit]
    if not axis or len(points) < FEWEST:
        return Markup()
    values = [v for row in points for v in (row.measured.low, row.measured.high, row.predicted or row.measured.value)]
    x = _Scale.over([row.x or 1.0 for row in points], LEFT, WIDTH - RIGHT)
    y = _Scale.over(values, HEIGHT - BOTTOM, TOP)
    drawn = [*_ends(points, values, x, y, unit), *_predicted(points, x, y), *_measured(points, x, y)]
    drawn.append(text(WIDTH - RIGHT, HEIGHT - 8, f"{axis} (dots: measured, line: predicted)", "end"))
    return svg(drawn, HEIGHT, f"What was measured over {axis}", "chart")


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
    for row in (points[0], points[-1]):
        yield text(x(row.x or 1.0), HEIGHT - BOTTOM + 22, row.label, "start" if row is points[0] else "end")


def _predicted(points: Sequence[Row], x: _Scale, y: _Scale) -> Iterable[Markup]:
    known = [(x(row.x or 1.0), y(row.predicted)) for row in points if row.predicted]
    for (x1, y1), (x2, y2) in pairwise(known):
        yield line(x1, y1, x2, y2, "roof")


def _measured(points: Sequence[Row], x: _Scale, y: _Scale) -> Iterable[Markup]:
    for row in points:
        at, figure = x(row.x or 1.0), row.measured
        yield line(at, y(figure.low), at, y(figure.high), "whisker")
        dot: dict[str, float | str] = {"cx": at, "cy": y(figure.value), "r": DOT, "class": "dot compute"}
        yield tag("circle", title(f"{row.label}: {figure_text(figure, row.unit)}"), dot)
