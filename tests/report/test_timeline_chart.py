"""The timeline as SVG: every slice at its place, names that fit, titles that say all, and nothing unmasked."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.formats import View
from gobrrr.report.html import report_page as timeline_page
from gobrrr.report.html.html import to_html
from gobrrr.report.html.svg import WIDTH
from gobrrr.report.html.timeline_chart import LEFT, RIGHT, memory_chart, said, timeline_chart
from gobrrr.report.timeline.slices import Said, Slice
from gobrrr.report.timeline.timeline import MOST, Lane, Timeline
from tests.report.test_tuning_page import words
from tests.support import page_samples as samples

DRAWN = samples.DRAWN
SLICES = [piece for lane in DRAWN.lanes for row in lane.rows for piece in row]


def rects(found: Timeline) -> list[ET.Element]:
    return list(ET.fromstring(timeline_chart(found)).iter("rect"))


def alone(piece: Slice) -> Timeline:
    return DRAWN._replace(lanes=(Lane("x", ((piece,),)),))


def test_every_slice_is_drawn_at_its_place_and_says_what_it_is() -> None:
    found = rects(DRAWN)
    scale = (WIDTH - LEFT - RIGHT) / DRAWN.ns
    for rect, piece in zip(found, SLICES, strict=True):
        long = scale * piece.busy_ns  # joined ones fill no more than they ran
        assert float(rect.attrib["x"]) == pytest.approx(LEFT + scale * piece.start, abs=0.01)
        assert max(0.3, long - 0.41) <= float(rect.attrib["width"]) <= max(0.3, long) + 0.01
        assert rect.attrib["class"] == f"slice k-{piece.kind}" and rect.findtext("title") == said(piece)
    tops = [float(rect.attrib["y"]) for rect in found]
    assert tops[1] == tops[2] and tops[0] < tops[1] < tops[3] < tops[4] < tops[5]


def test_what_hovering_says() -> None:
    assert [said(piece) for piece in SLICES] == [
        "train.py:41 in main, 1.00 ms",
        "waits for data, 400 us, train.py:41 in main",
        "7 events, 6.00 us in 10.0 us, the longest ops that launch",
        "linear, 500 us, 8x16 16x4, train.py:41 in main",
        "31 events, 1.50 us in 2.00 us, the longest mm, train.py:41 in main",
        "void k<float>(int), 590 us",
    ]


def test_a_name_is_written_where_it_has_room_and_cut_where_it_has_not() -> None:
    root = ET.fromstring(timeline_chart(DRAWN))
    labels = [text.text for text in root.iter("text") if text.attrib.get("class") == "label"]
    assert labels == ["train.py:41 in main", "waits for data", "linear", "void k<float>(int)"]
    narrow = alone(Slice(0, 60_000, "op", 1, 60_000, Said("aten::convolution")))
    assert [text.text for text in ET.fromstring(timeline_chart(narrow)).iter("text")][-1] == "conv…"


def test_a_kind_that_is_not_ours_is_no_class() -> None:
    assert rects(alone(Slice(0, 9, "copy evil", 1, 9, Said("a"))))[0].attrib["class"] == "slice k-op"


def test_the_script_is_told_the_scale() -> None:
    root = ET.fromstring(timeline_chart(DRAWN))
    told = {name: value for name, value in root.attrib.items() if name.startswith("data-")}
    assert told == {"data-left": str(LEFT), "data-width": str(WIDTH - LEFT - RIGHT), "data-ns": "1000000"}


def test_the_page_says_without_a_script_who_is_blamed_and_what_is_not_drawn() -> None:
    seen = words(to_html(samples.full(), View(timeline=DRAWN)))
    for told in ("Step 2 of the 5 that were profiled", "waits for data 400 us 40.0 %", "ops that launch 6.00 us",
                 "41 events; those shorter than 250 ns are joined", "3 of deeper levels"):  # fmt: skip
        assert told in seen, told
    assert "line of time" not in words(to_html(samples.full(), View()))


def test_what_is_masked_is_masked_in_every_text_of_the_timeline() -> None:
    hostile = samples.with_texts(DRAWN, "zebra")
    content = to_html(samples.full(), View(timeline=hostile, mask=lambda text: text.replace("zebra", "<gone>")))
    assert "zebra" in to_html(samples.full(), View(timeline=hostile)) and "zebra" not in content
    assert timeline_page.timeline(None) == {"chart": "", "memory": ""}


def test_memory_is_drawn_as_steps_with_its_peak() -> None:
    chart = memory_chart(DRAWN.memory, DRAWN.ns)
    root = ET.fromstring(chart)
    path, circle = root.find("path"), root.find("circle")
    assert path is not None and circle is not None
    top, bottom = 24, 24 + 130
    third = bottom - 130 / 3
    assert path.attrib["d"] == f"M150 {third:.2f}H402V{top}H990V{third:.2f}"
    assert (circle.attrib["cx"], circle.attrib["cy"]) == ("402", "24") and circle.findtext(
        "title"
    ) == "3.00 GiB at 300 us"
    assert "at most 3.00 GiB" in root.attrib["aria-label"]
    below = ET.fromstring(memory_chart([(0, -100), (50, 100)], 100)).find("path")
    assert below is not None and below.attrib["d"] == "M150 154H570V24"
    assert memory_chart([], 5) == memory_chart([(0, 0), (5, 0)], 5) == ""


def test_the_longest_names_of_as_many_slices_as_there_are_keep_the_page_small() -> None:
    worst = Said("n" * 8000, "9x" * 200, Span("f" * 40 + ".py", 12345, "g" * 20))
    row = tuple(Slice(i * 100, i * 100 + 90, "op", 1, 90, worst) for i in range(MOST))
    found = Timeline(1, 1, MOST * 100, (Lane("x", (row,)),), 1, MOST)
    assert len(to_html(samples.full(), View(steps=samples.TIMES, timeline=found)).encode()) < 1_500_000
