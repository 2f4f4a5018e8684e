"""Charts: stretches that sum to the whole, coordinates inside the viewBox, text that cannot leave its element."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from gobrrr.report.html import charts
from gobrrr.report.html.charts import BOTTOM, FLAT, LEFT, RIGHT, TALL, TOP, WIDTH, Part, Point
from gobrrr.report.timeline.timeline import KINDS, StepTime
from tests.support import report_samples as samples

PARTS = [Part("a", 30.0, "work"), Part("b & <b>", 10.0, "idle"), Part("none", 0.0, "rest"), Part("c", 60.0, "loss")]


def numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(element.attrib[name]) for name in names]


def test_a_stack_fills_its_width_in_proportion() -> None:
    rects = ET.fromstring(charts.stack(PARTS, "x")).findall("rect")
    assert [numbers(rect, "x", "width") for rect in rects] == [[0, 300], [300, 100], [400, 600]]


def test_a_ledger_with_its_rest_fills_the_step() -> None:
    parts = [Part(a.account, a.ns, "work") for a in samples.starved().ledger]
    widths = [float(rect.attrib["width"]) for rect in ET.fromstring(charts.stack(parts, "x")).iter("rect")]
    assert sum(widths) == pytest.approx(WIDTH, abs=0.01 * len(widths))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -5.0])
def test_what_is_no_size_takes_no_room(bad: float) -> None:
    rects = ET.fromstring(charts.stack([Part("bad", bad, "idle"), Part("good", 1.0, "work")], "x")).findall("rect")
    assert [rect.attrib["width"] for rect in rects] == ["1000"]
    assert charts.stack([Part("bad", bad, "idle")], "x") == ""


def test_text_stays_text() -> None:
    svg = charts.stack(PARTS, 'a "label" <i>')
    root = ET.fromstring(svg)
    assert root.attrib["aria-label"] == 'a "label" <i>'
    assert [title.text for title in root.iter("title")] == ["a", "b & <b>", "c"]
    assert {element.tag for element in root.iter()} == {"svg", "rect", "title"}


def test_a_point_on_the_ridge_lies_on_both_ceilings() -> None:
    points = [Point(1, 10.0, 1e12, 0.5, "compute", "one"), Point(2, 0.1, 1e9, 0.1, "bandwidth", "two")]
    root = ET.fromstring(charts.roofline(points, 1e12, 1e11))
    line = root.find("polyline")
    assert line is not None
    corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
    large, small = root.findall("circle")
    assert corners[1] == pytest.approx(numbers(large, "cx", "cy"))
    assert corners[2][1] == corners[1][1] > TOP
    assert float(large.attrib["r"]) > float(small.attrib["r"])
    for circle in (large, small):
        x, y = numbers(circle, "cx", "cy")
        assert LEFT <= x <= WIDTH - RIGHT and TOP <= y <= TALL - BOTTOM
    assert float(small.attrib["cy"]) > corners[1][1]


def test_no_point_lies_above_the_ceiling_of_flops() -> None:
    root = ET.fromstring(charts.roofline([Point(1, 100.0, 5e12, 0.5, "compute", "one")], 1e12, 1e11))
    line, circle = root.find("polyline"), root.find("circle")
    assert line is not None and circle is not None
    assert float(circle.attrib["cy"]) == pytest.approx(float(line.attrib["points"].split(",")[-1]))


@pytest.mark.parametrize("size", [5e-324, 1e300])
def test_a_report_from_anywhere_has_a_roofline(size: float) -> None:
    assert "<svg" in str(charts.roofline([Point(1, size, size, 0.5, "compute", "a")], size, size))


@pytest.mark.parametrize("rate", [0.0, math.nan, math.inf])
def test_without_a_rate_there_is_no_roofline(rate: float) -> None:
    assert charts.roofline([Point(1, 1.0, rate, 0.5, "compute", "x")], 1e12, 1e11) == ""


def test_every_step_is_drawn_inside_and_kinds_differ_in_shape() -> None:
    times = [StepTime(i, 10**6 * (1 + 20 * (i == 7)), KINDS[i % len(KINDS)]) for i in range(1, 41)]
    root = ET.fromstring(charts.steps(times, 1e6))
    paths = root.findall("path")
    assert len(paths) == 40
    for path in paths:
        x, y = map(float, re.findall(r"[\d.]+", path.attrib["d"])[:2])
        assert LEFT <= x <= WIDTH - RIGHT and TOP <= y <= FLAT - BOTTOM
    shapes = {re.sub(r"^M\S+ [\d.]+", "", path.attrib["d"]) for path in paths}
    assert len(shapes) == len(KINDS)
    assert [t.text for t in root.iter("title") if t.text and "above" in t.text] == [
        f"step 7, {times[6].kind}: 21.0 ms, above the chart"
    ]
