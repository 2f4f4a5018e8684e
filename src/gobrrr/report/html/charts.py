"""Charts of the page as SVG, drawn by small pure functions. Every text passes markupsafe's escaping.

Colour never stands alone: stacks have a pattern for each kind and a table below with the same swatches, points have
numbers or shapes of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from gobrrr import units
from gobrrr.report.html.svg import HUGE, SLIGHT, WIDTH, Scale, line, number, svg, tag, text, title
from gobrrr.report.timeline.timeline import StepTime
from gobrrr.report.told.bars import finite

STACK, THIN = 36, 12
"""Heights of stacks and of the bars beside figures."""
LEFT, RIGHT, TOP, BOTTOM = 110, 30, 40, 60
"""Margins of charts with axes: digits and names stand there."""
TALL, FLAT = 460, 300
SMALLEST, LARGEST = 5.0, 34.0
"""Radii of points: the area says the share of the step."""
CLIPPED = 4.0
"""Multiple of the median at which step times are cut off; longer ones are drawn at the edge, marked as such."""


class Part(NamedTuple):
    """A stretch of a stack: what it is, how large, of which kind (a class of the style sheet), what hovering says."""

    name: str
    value: float
    kind: str
    said: str = ""


class Point(NamedTuple):
    """An op against the roofline: FLOPs per byte, FLOP/s, share of the step."""

    number: int
    intensity: float
    rate: float
    share: float
    bound: str
    said: str


def stack(parts: Sequence[Part], label: str, whole: float = 0.0) -> Markup:
    """Stretches side by side; the whole width is their sum, or `whole` where that is more. Empty where none is."""
    known = [part._replace(value=_size(part.value)) for part in parts if _size(part.value) > 0]
    total = max(whole, math.fsum(part.value for part in known))
    at, drawn = 0.0, []
    for part in known:
        width = WIDTH * part.value / total
        drawn.append(_rect(at, width, STACK, f"part {part.kind}", part.said or part.name))
        at += width
    return svg(drawn, STACK, label, "stack", stretched=True) if known else Markup()


def share_bar(shares: Sequence[tuple[float, str]], label: str) -> Markup:
    """Bars from zero over each other, the longest first, each a share of the whole width: (share, kind)."""
    longest_first = sorted(shares, key=lambda each: -each[0])
    return _bars([(0.0, WIDTH * min(1.0, _size(share)), kind) for share, kind in longest_first], label)


def span_bar(start: float, end: float, kind: str, label: str) -> Markup:
    """A bar from one share of the whole width to another."""
    left, right = (WIDTH * min(1.0, _size(share)) for share in (start, end))
    return _bars([(left, max(2.0, right - left), kind)], label)


def _bars(bars: Iterable[tuple[float, float, str]], label: str) -> Markup:
    """Bars on a track, each with its begin, width and kind."""
    drawn = [_rect(0, WIDTH, THIN, "track"), *(_rect(x, width, THIN, f"part {kind}") for x, width, kind in bars)]
    return svg(drawn, THIN, label, "thin", stretched=True)


def _rect(x: float, width: float, height: float, kind: str, said: str = "") -> Markup:
    shape: dict[str, float | str] = {"x": x, "y": 0, "width": width, "height": height, "class": kind}
    return tag("rect", title(said) if said else Markup(), shape)


def roofline(points: Sequence[Point], flop_rate: float, byte_rate: float) -> Markup:
    """FLOP/s over FLOPs per byte, both logarithmic, under the two ceilings. Empty where no point can be drawn."""
    known = [p for p in points if p.intensity > 0 and p.rate > 0 and math.isfinite(p.intensity + p.rate)]
    if not known or flop_rate <= 0 or byte_rate <= 0:
        return Markup()
    ridge = flop_rate / byte_rate
    across = _decades([ridge, *(p.intensity for p in known)])
    up = _decades([flop_rate, *(p.rate for p in known)])
    x, y = Scale(*across, LEFT, WIDTH - RIGHT), Scale(*up, TALL - BOTTOM, TOP)
    lowest = max(10.0 ** across[0], 10.0 ** up[0] / byte_rate)
    roof = [(x(lowest), y(lowest * byte_rate)), (x(ridge), y(flop_rate)), (x(10.0 ** across[1]), y(flop_rate))]
    drawn = [
        *_grid(across, up, x, y),
        tag("polyline", Markup(), {"points": " ".join(f"{number(a)},{number(b)}" for a, b in roof), "class": "roof"}),
        *_points(known, x, y, flop_rate),
        text(WIDTH - RIGHT, TALL - 12, "FLOPs per byte", "end"), text(8, TOP - 20, "FLOP/s", "start"),
    ]  # fmt: skip
    return svg(drawn, TALL, f"Roofline: {len(known)} ops under the ceilings", "chart")


def steps(times: Sequence[StepTime], median: float) -> Markup:
    """The time of every step over the run; what is no plain step has a mark of its own shape."""
    if len(times) < 2 or median <= 0:
        return Markup()
    top = min(max(step.ns for step in times), CLIPPED * median) * 1.05
    first, last = times[0].number, times[-1].number
    drawn = []
    for part in range(5):
        level = top * part / 4
        at = _down(level, top)
        drawn.append(line(LEFT, at, WIDTH - RIGHT, at, "grid"))
        drawn.append(text(LEFT - 10, at + 5, units.duration(level) if level else "0", "end"))
    drawn.append(line(LEFT, _down(median, top), WIDTH - RIGHT, _down(median, top), "median"))
    for step in times:
        across = LEFT + (WIDTH - RIGHT - LEFT) * (step.number - first) / max(1, last - first)
        said = f"step {step.number}, {step.kind}: {units.duration(step.ns)}"
        path = _MARKS[step.kind].format(number(across), number(_down(min(step.ns, top), top)))
        over = ", above the chart" if step.ns > top else ""
        drawn.append(tag("path", title(said + over), {"d": path, "class": f"step {step.kind}"}))
    drawn += [text(LEFT, FLAT - 20, f"step {first}", "start"), text(WIDTH - RIGHT, FLAT - 20, f"step {last}", "end")]
    return svg(drawn, FLAT, f"Time of steps {first} to {last}", "chart")


_MARKS = {
    "plain": "M{0} {1}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0",
    "slow": "M{0} {1}m-6 -6l12 12m0 -12l-12 12",
    "warm-up": "M{0} {1}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
    "window": "M{0} {1}m-5 -5h10v10h-10z",
    "other": "M{0} {1}m0 -6l5 9h-10z",
}
_KEY = Markup('<svg class="key" viewBox="0 0 20 20" aria-hidden="true">{}</svg>')


def mark(kind: str) -> Markup:
    """A mark by itself, for the key."""
    return _KEY.format(tag("path", Markup(), {"d": _MARKS[kind].format(10, 10), "class": f"step {kind}"}))


def swatch(kind: str) -> Markup:
    """A piece of a stack by itself, for the key."""
    return _KEY.format(_rect(0, 20, 20, f"part {kind}"))


def _down(value: float, top: float) -> float:
    return FLAT - BOTTOM - (FLAT - BOTTOM - TOP) * value / top


def _points(points: Sequence[Point], x: Scale, y: Scale, ceiling: float) -> Iterable[Markup]:
    """The large ones below the small ones, each with its number beside it; none above the ceiling of FLOPs."""
    for point in sorted(points, key=lambda p: -p.share):
        radius = max(SMALLEST, LARGEST * math.sqrt(min(1.0, _size(point.share))))
        across, down = x(point.intensity), y(min(point.rate, ceiling))
        where: dict[str, float | str] = {"cx": across, "cy": down, "r": radius, "class": f"point {point.bound}"}
        yield tag("circle", title(point.said), where)
        yield text(across + radius + 3, down + 5, str(point.number), "start")


def _grid(across: tuple[int, int], up: tuple[int, int], x: Scale, y: Scale) -> Iterable[Markup]:
    for power in range(across[0], across[1] + 1):
        at = x(10.0**power)
        yield line(at, TOP, at, TALL - BOTTOM, "grid")
        yield text(at, TALL - BOTTOM + 22, f"{10.0**power:g}", "middle")
    for power in range(up[0], up[1] + 1):
        at = y(10.0**power)
        yield line(LEFT, at, WIDTH - RIGHT, at, "grid")
        yield text(LEFT - 10, at + 5, units.flops(10.0**power).replace(".0 ", " ").removesuffix("FLOP"), "end")


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Whole powers of ten around the values, at most twelve of them."""
    least, most = (min(max(value, SLIGHT), HUGE) for value in (min(values), max(values)))
    high = math.ceil(math.log10(most) + 1e-9)
    low = max(math.floor(math.log10(least)), high - 12)
    return (low, high) if high > low else (low, low + 1)


def _size(value: float) -> float:
    return max(0.0, value) if math.isfinite(value) else finite(value)
