"""Gauges over the run: every sample in a point, loop and windows at their place, the chart's figures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.machine.gauges.readings import GaugedDevice, Head, Reading, Sample
from gobrrr.recording.run_folder.gauges_file import Gauges, read_gauges
from gobrrr.report.forms.formats import View
from gobrrr.report.html.gauges_chart import LEFT, RIGHT, STRIP, TOP, gauges_chart
from gobrrr.report.html.html import to_html
from gobrrr.report.html.svg import WIDTH
from gobrrr.report.timeline.gauge_lines import POINTS, GaugeLine, GaugeLines, gauge_lines
from tests.report.test_tuning_page import words
from tests.support import page_samples as samples

S, GIB = 10**9, 1 << 30
H100 = GaugedDevice("H100", 80 * GIB, 700.0, 700.0, 1_980, True)


def recorded(num: int = 1000, gauges: Gauges | None = None) -> Any:
    """A hundred seconds at ten a second: the processor at 80 W, a device that works in the second half, an idle one."""
    idle = Reading(busy=0.0, used=GIB, watts=70.0)
    made = tuple(
        Sample(5 * S + i * S // 10, (
            Reading(busy=0.9 * (i >= 500), used=GIB + 4 * GIB * (i >= 500), watts=100.0 + 4 * (i % 100),
                    clock_mhz=1_755), idle), cpu_joules=8.0 * i)
        for i in range(num)
    )  # fmt: skip
    steps = [SimpleNamespace(start=15 * S, end=16 * S), SimpleNamespace(start=94 * S, end=95 * S)]
    looks = [SimpleNamespace(began=25 * S, ended=35 * S)]
    told = gauges or Gauges(Head((H100, GaugedDevice("idle"))), made)
    return SimpleNamespace(gauges=told, main=SimpleNamespace(steps=steps), windows=looks)


def lines(num: int = 1000) -> GaugeLines:
    found = gauge_lines(recorded(num))
    assert found is not None
    return found


def test_a_long_run_has_some_hundred_points_of_each_gauge_each_the_mean_of_what_was_read_there() -> None:
    found = lines()
    assert [name for name, _ in found.devices] == ["H100", "processor"], "what the program does not use is not drawn"
    drawn = {each.name: each for each in found.devices[0][1]}
    assert list(drawn) == ["busy", "power", "clock", "memory"]
    assert (found.ns, found.loop) == (99_900_000_000, (10 * S, 90 * S))
    assert found.windows == ((20 * S, 30 * S),)
    for each in drawn.values():
        assert POINTS * 0.9 < len(each.points) <= POINTS
        assert [ns for ns, _ in each.points] == sorted({ns for ns, _ in each.points})
    first_at, first = drawn["power"].points[0]
    assert (first_at, first) == (pytest.approx(0.2 * S), pytest.approx(fmean((100, 104, 108, 112, 116))))
    assert {each.name: each.limit for each in drawn.values()} == {
        "busy": 1.0, "power": 700.0, "clock": 1_980, "memory": 80 * GIB}  # fmt: skip
    assert {round(value, 9) for ns, value in drawn["busy"].points if ns > 51 * S} == {0.9}


def test_the_processors_watts_are_the_counters_difference_over_the_time() -> None:
    _, (power,) = lines().devices[1]
    assert {round(value, 6) for _, value in power.points} == {80.0} and power.limit is None


def test_a_short_run_keeps_every_sample_and_none_is_no_chart() -> None:
    (_, drawn), _ = lines(520).devices
    assert len(drawn[0].points) == POINTS
    short = [Sample(i * S // 10, (Reading(used=i * GIB, watts=5.0),)) for i in range(4)]
    ((_, drawn),) = gauge_lines(recorded(gauges=Gauges(Head((H100,)), tuple(short)))).devices  # type: ignore[union-attr]
    assert [each.points for each in drawn if each.name == "power"] == [tuple((i * S // 10, 5.0) for i in range(4))]
    for nothing in (None, Gauges(Head((H100,)), tuple(short[:1])), Gauges(Head(), tuple(
        Sample(i) for i in range(9)))):  # fmt: skip
        made = recorded()
        made.gauges = nothing
        assert gauge_lines(made) is None


def chart(it: GaugeLine, **fields: Any) -> ET.Element:
    return ET.fromstring(gauges_chart(GaugeLines(100, (), **fields), "H100", (it,)))


def test_points_limit_loop_and_looks_are_drawn_at_their_place() -> None:
    wide = WIDTH - LEFT - RIGHT
    power = GaugeLine("power", ((0, 350.0), (50, 175.0), (100, 0.0)), 700.0)
    root = chart(power, loop=(25, 75), windows=((50, 60),))
    (path,) = root.iter("polyline")
    points = [tuple(map(float, point.split(","))) for point in path.attrib["points"].split()]
    assert points == [(LEFT, TOP + STRIP / 2), (LEFT + wide / 2, TOP + 0.75 * STRIP), (WIDTH - RIGHT, TOP + STRIP)]
    assert path.findtext("title") == "power: 175 W on average, 350 W at most"
    loop, look = root.iter("rect")
    assert (float(loop.attrib["x"]), float(loop.attrib["width"])) == (LEFT + wide / 4, wide / 2)
    assert (loop.attrib["class"], look.attrib["class"], look.findtext("title")) == ("track", "most", "a closer look")
    assert float(look.attrib["x"]) == LEFT + wide / 2 and float(look.attrib["width"]) == wide / 10
    (limit,) = [each for each in root.iter("line") if each.attrib["class"] == "median"]
    assert float(limit.attrib["y1"]) == TOP
    assert {"700 W", "power", "0"} <= {text.text for text in root.iter("text")}


def test_figures_that_no_gauge_has_are_drawn_within_the_chart() -> None:
    for value, limit in ((1e308, None), (-5.0, -3.0), (0.0, 0.0), (5.0, 1e308)):
        root = chart(GaugeLine("memory", ((0, value), (100, value)), limit))
        (path,) = root.iter("polyline")
        assert all(TOP <= float(point.split(",")[1]) <= TOP + STRIP for point in path.attrib["points"].split())


def test_the_page_has_them_where_they_were_sampled_masked_and_escaped() -> None:
    found = lines()
    hostile = found._replace(devices=(("<b>key-1", found.devices[0][1]), found.devices[1]))
    page = to_html(samples.full(), View(gauges=hostile, mask=lambda text: text.replace("key-1", "***")))
    assert page.count("Gauges over the run") == 1 and "key-1" not in page and "<b>***" not in page
    assert "busy: 45.0 % on average, 90.0 % at most" in words(page)
    assert "Gauges over the run" not in to_html(samples.full(), View())
    assert len(page) - len(to_html(samples.full(), View())) < 30_000


@pytest.mark.parametrize("field", ["used", "ours", "clock_mhz", "celsius", "errors"])
def test_numbers_of_a_thousand_digits_are_no_sample(tmp_path: Path, field: str) -> None:
    line = b'{"t":%d,"devices":[{"' + field.encode() + b'":%s}]}\n'
    file = b'{"devices":[{"name":"x"}]}\n' + line % (1, b"5") + line % (2, b"9" * 1000) + b'{"t":' + b"9" * 400 + b"}\n"
    (tmp_path / "gauges.jsonl").write_bytes(file)
    found = read_gauges(tmp_path)
    assert found is not None and [sample.t for sample in found.samples] == [1]
