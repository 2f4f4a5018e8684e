"""A device's gauges over the run as SVG: a strip for each line, behind it the loop and its closer looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from markupsafe import Markup

from gobrrr import units
from gobrrr.report.html.svg import WIDTH, line, number, svg, tag, text, title
from gobrrr.report.timeline.gauge_lines import GaugeLine, GaugeLines

LEFT, RIGHT, TOP = 190, 30, 14
STRIP, ROW, BOTTOM = 70, 92, 18
"""Height of a strip, of it with the room to the next, and of the axis of time."""
LARGEST = 1e15
"""Beyond any gauge: a file may say anything."""
WRITTEN: dict[str, Callable[[float], str]] = {
    "busy": units.share, "power": lambda value: f"{value:,.0f} W", "clock": lambda value: f"{value:,.0f} MHz",
    "memory": units.size,
}  # fmt: skip


def gauges_chart(found: GaugeLines, name: str, lines: tuple[GaugeLine, ...]) -> Markup:
    """The lines of one device."""
    bottom = TOP + ROW * len(lines)
    drawn = [part for row, each in enumerate(lines) for part in _strip(found, each, TOP + ROW * row)]
    for part in range(5):
        at, anchor = _across(found, found.ns * part / 4), "end" if part == 4 else "middle" if part else "start"
        drawn.append(text(at, bottom, units.duration(found.ns * part / 4) if part else "0", anchor))
    return svg(drawn, bottom + BOTTOM, f"{name} over the run", "chart")


def _across(found: GaugeLines, ns: float) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * ns / max(1, found.ns)


def _strip(found: GaugeLines, each: GaugeLine, top: float) -> Iterator[Markup]:
    say, values = WRITTEN[each.name], [max(0.0, min(LARGEST, value)) for _, value in each.points]
    limit = max(0.0, min(LARGEST, each.limit or 0.0))
    most = max(*values, limit) or 1.0
    for kind, words, (begin, end) in (
        *([("track", "the loop", found.loop)] if found.loop else []),
        *(("most", "a closer look", window) for window in found.windows),
    ):
        left, width = _across(found, begin), max(0.5, _across(found, end) - _across(found, begin))
        sides: dict[str, float | str] = {"x": left, "y": top, "width": width, "height": STRIP, "class": kind}
        yield tag("rect", title(words), sides)
    yield line(LEFT, top + STRIP, WIDTH - RIGHT, top + STRIP, "grid")
    yield text(LEFT - 10, top + STRIP, "0", "end")
    yield text(LEFT - 10, top + 12, say(most), "end")
    yield text(8, top + 40, each.name, "start")
    if limit:
        at = top + STRIP * (1 - limit / most)
        yield line(LEFT, at, WIDTH - RIGHT, at, "median")
    path = " ".join(
        f"{number(_across(found, ns))},{number(top + STRIP * (1 - value / most))}"
        for (ns, _), value in zip(each.points, values, strict=True)
    )
    said = title(f"{each.name}: {say(sum(values) / len(values))} on average, {say(max(values))} at most")
    yield tag("polyline", said, {"points": path, "class": "held"})
