"""Draws the bytes that tensors held on the device over one step, as SVG on the timeline's scale."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from gobrrr import units
from gobrrr.report.html.svg import WIDTH, line, number, svg, tag, text, title
from gobrrr.report.html.timeline_chart import LEFT, RIGHT

TOP, TALL, BOTTOM = 24, 130, 24
PARTS = 4  # parts between grid lines; proposed: quarters read at a glance; settled by reading levels off pages


def memory_chart(points: Sequence[tuple[int, int]], ns: int) -> Markup:
    """(ns, bytes) as steps, from zero or the least to the most. Empty where nothing is held."""
    held = [num_bytes for _, num_bytes in points]
    if not held or max(held) <= min(0, *held):
        return Markup()
    low, high = min(0, *held), max(held)

    def x(at: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, ns)

    def y(num_bytes: float) -> float:
        return TOP + TALL * (high - num_bytes) / (high - low)

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
    drawn.append(text(LEFT, TOP + TALL + BOTTOM - 4, "0", "start"))
    drawn.append(text(WIDTH - RIGHT, TOP + TALL + BOTTOM - 4, units.duration(ns), "end"))
    return svg(drawn, TOP + TALL + BOTTOM, f"Memory over the step: at most {units.size(most)}", "chart")
