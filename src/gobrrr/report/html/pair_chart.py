"""Paired samples as dots, a row for each trial, with what they say together and its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from gobrrr.report.html.svg import WIDTH, Scale, line, number, svg, tag, text, title
from gobrrr.report.told.blocks import clipped

LEFT, RIGHT, TOP, BOTTOM = 300, 40, 16, 56
ROW, SPREAD = 44, 26
"""Height of a row, and of it what the dots take: the first that ran at the top."""
MOST = 300
"""Dots of a row; of more every n-th."""
NAME = 32
"""Characters of a name beside its row; the table has all of it."""
WIDEST = 64.0
"""Largest factor, faster or slower, on the axis; what lies beyond stands at its edge."""
TICKS = (0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
APART = 60.0
"""Least room between two ticks, so that their words do not touch."""


class PairRow(NamedTuple):
    """A trial: its number in the table, ratios of its pairs (above 1: faster), (low, median, high) of all together, and
    what that is in words."""

    number: int
    name: str
    ratios: tuple[float, ...]
    interval: tuple[float, float, float] | None
    said: str


def pairs(rows: Sequence[PairRow], called: str) -> Markup:
    """All rows on one axis of ratios, `called` so, which is logarithmic. Empty where no row has a figure."""
    rows = [_drawable(row) for row in rows]
    known = [value for row in rows for value in (*row.ratios, *(row.interval or ()))]
    if not known:
        return Markup()
    reach = max(math.log10(1.25), *(min(math.log10(WIDEST), abs(math.log10(value))) for value in known))
    low = -reach if min(known) < 0.95 else -0.1 * reach
    axis = Scale(low, reach if max(known) > 1.05 else 0.1 * reach, LEFT, WIDTH - RIGHT)
    height = TOP + ROW * len(rows) + BOTTOM
    drawn = [
        *_grid(axis, height),
        *(part for i, row in enumerate(rows) for part in _row(row, TOP + ROW * (i + 0.5), axis)),
    ]
    drawn.append(text(WIDTH - RIGHT, height - 8, called, "end"))
    return svg(drawn, height, "Pairs that were measured, by trial", "chart")


def _drawable(row: PairRow) -> PairRow:
    """Without what has no logarithm."""
    ratios = tuple(each for each in row.ratios if math.isfinite(each) and each > 0)
    whole = row.interval is not None and all(math.isfinite(each) and each > 0 for each in row.interval)
    return row._replace(ratios=ratios[:: -(-len(ratios) // MOST) or 1], interval=row.interval if whole else None)


def _grid(axis: Scale, height: float) -> Iterable[Markup]:
    """The ratio of 1, and as many others as there is room for."""
    taken = [axis(1.0)]
    for tick in sorted(TICKS, key=lambda tick: abs(math.log(tick))):
        inside = axis.low <= math.log10(tick) <= axis.high
        if tick == 1.0 or (inside and all(abs(axis(tick) - at) >= APART for at in taken)):
            taken.append(axis(tick))
            yield line(axis(tick), TOP, axis(tick), height - BOTTOM, "one" if tick == 1.0 else "grid")
            yield text(axis(tick), height - BOTTOM + 22, f"{tick:g}", "middle")


def _row(row: PairRow, middle: float, axis: Scale) -> Iterable[Markup]:
    yield text(LEFT - 14, middle + 5, f"{row.number} {clipped(row.name, NAME)}", "end")
    if row.interval is None and not row.ratios:
        yield text(LEFT + 4, middle + 5, row.said, "start")
    for i, ratio in enumerate(row.ratios):
        at = middle + SPREAD * ((i + 0.5) / len(row.ratios) - 0.5)
        yield tag("circle", title(f"{row.name}, pair {i + 1}: {ratio:.3f}"),
                  {"cx": axis(ratio), "cy": at, "r": 3, "class": "pair"})  # fmt: skip
    if row.interval is not None:
        low, mid, high = (axis(each) for each in row.interval)
        path = f"M{number(low)} {number(middle)}H{number(high)}M{number(mid)} {number(middle - 12)}v24"
        yield tag("path", title(f"{row.name}: {row.said}"), {"d": path, "class": "whisker"})
