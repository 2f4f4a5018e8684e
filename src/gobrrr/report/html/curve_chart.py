"""Points joined in their order, each with its name beside it: one figure against another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from gobrrr.report.html.svg import WIDTH, line, number, svg, tag, text, title
from gobrrr.report.told.blocks import clipped

LEFT, RIGHT, TOP, BOTTOM, TALL = 110, 60, 40, 60, 400
TICKS = 5
"""Lines of the grid each way at most."""
NAME = 20
"""Characters of a name beside its point."""


class CurvePoint(NamedTuple):
    """A point: its name, its two figures, and what it is marked as: best, now, or nothing. Without a name nothing
    stands beside it."""

    name: str
    across: float
    up: float
    mark: str = ""
    low: float = 0.0
    high: float = 0.0
    """Interval of `up`, where it has one."""
    said: str = ""
    """Words for hovering, where that is not its name and figures."""
    is_apart: bool = False
    """No line leads to it from the point before."""


class Axis(NamedTuple):
    """An axis from 0: its name, how a figure on it is written, and whether round ones are powers of two."""

    name: str
    written: Callable[[float], str]
    is_binary: bool = False


def curve(points: Sequence[CurvePoint], across: Axis, up: Axis) -> Markup:
    """The points on linear axes from 0. Empty where fewer than two can be drawn."""
    known = _drawable(points)
    if len(known) < 2:
        return Markup()
    right, top = 1.08 * max(point.across for point in known), 1.08 * max(max(point.up, point.high) for point in known)

    def place(point: CurvePoint) -> tuple[float, float]:
        return (LEFT + (WIDTH - RIGHT - LEFT) * point.across / right,
                TALL - BOTTOM - (TALL - BOTTOM - TOP) * point.up / top)  # fmt: skip

    drawn = [
        *_grid(across, right, lambda x: place(CurvePoint("", x, 0.0))[0], is_up=False),
        *_grid(up, top, lambda y: place(CurvePoint("", 0.0, y))[1], is_up=True),
        *(tag("polyline", Markup(), {"points": " ".join(f"{number(x)},{number(y)}" for x, y in map(place, joined)),
                                     "class": "step"}) for joined in _joined(known)),
        text(WIDTH - RIGHT, TALL - 12, across.name, "end"), text(8, TOP - 20, up.name, "start"),
    ]  # fmt: skip
    for point in known:
        x, y = place(point)
        marked = f" ({point.mark})" if point.mark else ""
        said = point.said or f"{point.name}{marked}: {across.written(point.across)}, {up.written(point.up)}"
        if 0 < point.low < point.high < math.inf:
            ends = (place(point._replace(up=value))[1] for value in (point.low, point.high))
            drawn.append(line(x, next(ends), x, next(ends), "whisker"))
        drawn.append(tag("circle", title(said), {"cx": x, "cy": y, "r": 7 if point.mark else 4, "class": "point"}))
        if point.name:
            drawn.append(text(x + 10, y - 8, f"{clipped(point.name, NAME)}{marked}", "start"))
    return svg(drawn, TALL, f"{up.name} against {across.name}", "chart")


def _drawable(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Points that have a place; what stands before one that has none stays apart from what stands behind it."""
    found, is_apart = list[CurvePoint](), False
    for point in points:
        is_apart |= point.is_apart
        if 0 < point.across < math.inf and 0 < point.up < math.inf:
            found.append(point._replace(is_apart=is_apart))
            is_apart = False
    return found


def _joined(points: Sequence[CurvePoint]) -> list[list[CurvePoint]]:
    """Points that one line joins."""
    found: list[list[CurvePoint]] = []
    for point in points:
        if point.is_apart or not found:
            found.append([])
        found[-1].append(point)
    return found


def _grid(axis: Axis, most: float, at: Callable[[float], float], is_up: bool) -> Iterable[Markup]:
    """Lines at round figures with what they are."""
    step = 10 ** math.floor(math.log10(most / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (factor * step) <= TICKS)
    step = 2.0 ** math.ceil(math.log2(most / TICKS)) if axis.is_binary else step
    for value in (step * part for part in range(int(most / step) + 1)):
        where, told = at(value), axis.written(value) if value else "0"
        if is_up:
            yield line(LEFT, where, WIDTH - RIGHT, where, "grid")
            yield text(LEFT - 10, where + 5, told, "end")
        else:
            yield line(where, TOP, where, TALL - BOTTOM, "grid")
            yield text(where, TALL - BOTTOM + 22, told, "middle")
