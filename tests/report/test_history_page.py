"""A history told: a line for each run, since when a step is longer, the page's lines and strips, nothing hostile."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from gobrrr.recording.model.setup import Setup
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from gobrrr.report.html import history_page
from gobrrr.report.html.html import to_html
from gobrrr.report.runs import history as told
from gobrrr.rules.verdict.history import History, Kept, history
from gobrrr.rules.verdict.report import Report
from tests.report.test_report_html import Parsed
from tests.rules.test_history import GIB, run
from tests.rules.test_regression import report as rules_report
from tests.support import page_samples, report_samples

SOON = 1_790_000_000_000_000_000
KEEP = frozenset(("schema", "state"))


def setup(commit: str, **changes: str) -> Setup:
    return Setup(1_790_000_000_000_000_000, commit, "main", False, "aa", dict(changes))


def sample() -> History:
    """Two sound runs, one that failed, a slower and larger one on another commit, and one from another computer."""
    wait, attention = report_samples.finding("BRR401"), report_samples.finding("BRR105")
    every: list[Report] = [
        run(100, peak=GIB, setup=setup("a1b2c3d4", OMP_NUM_THREADS="1"), findings=(wait,)),
        run(101, peak=GIB, setup=setup("a1b2c3d4", OMP_NUM_THREADS="1"), findings=(wait,)),
        run(50, peak=GIB, exit_code=1, setup=setup("a1b2c3d4")),
        run(132, peak=2 * GIB, setup=setup("d4e5f6a7", OMP_NUM_THREADS="2"), findings=(wait, attention)),
        run(500, peak=2 * GIB, setup=setup("d4e5f6a7", OMP_NUM_THREADS="2"), host="there", findings=(attention,)),
    ]  # fmt: skip
    kept = [Kept(f"train-{number}", 1_790_000_000_000_000_000 + number, each) for number, each in enumerate(every)]
    return history(".gobrrr", kept, [("train-9", "not a report")])


SAMPLE = sample()


def shown(form: str) -> str:
    return formats.render(SAMPLE, form, View()).decode()


def test_each_run_is_one_line_whose_columns_are_aligned() -> None:
    lines = shown("text").splitlines()
    at = next(number for number, line in enumerate(lines) if re.match("run +when", line))
    rows = lines[at + 1 : at + 6]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row.index(" ms") for row in rows] == [rows[0].index(" ms")] * 5
    assert " ".join(rows[3].split()[3:]) == "132 ms 131 to 133 ms +31 % 2.00 GiB +100 % data BRR401 BRR105"
    assert " ".join(rows[1].split()[3:]) == "101 ms 100 to 102 ms ~ 1.00 GiB ~ data BRR401"
    assert " ".join(rows[2].split()[3:]) == "50.0 ms 49.5 to 50.5 ms 1.00 GiB failed"


def test_a_day_has_its_year_where_that_is_another() -> None:
    year = 366 * 86_400_000_000_000
    every = [Kept(str(at), began, run()) for at, began in enumerate((SOON - year, SOON))]
    first, second = told.table(history("", every).programs[0]).rows
    day = time.localtime(SOON / 1e9)
    assert first[1].text == time.strftime("%Y-%m-%d", time.localtime((SOON - year) / 1e9))
    assert second[1].text == time.strftime("%m-%d %H:%M", day)


def test_the_first_line_says_since_when_and_what_changed_with_it() -> None:
    text = " ".join(shown("text").split())
    assert (
        "train.py: 5 runs; a step is 1.32x slower (95 %: 1.27 to 1.37) and the peak is 100.0 % larger in run 4, "
        "the newest: one more run settles it; between runs 2 and 4: commit a1b2c3d → d4e5f6a, OMP_NUM_THREADS 1 → 2 run"
    ) in text
    assert "3: OMP_NUM_THREADS 1 → none; failed: it ended with 1 (train-2)" in text
    assert "BRR105 came" in text and "on another computer, so times are not compared" in text
    assert "not read train-9: not a report" in text


def test_a_faster_step_is_told_by_its_inverse() -> None:
    every = [Kept(str(at), at, each) for at, each in enumerate((run(100), run(50)))]
    assert (
        "a step is 2.00x faster (95 %: 1.91 to 2.10) in run 2, the newest: one more run settles it; between"
        in told.headline(history("", every).programs[0])
    )


def test_json_says_its_schema_and_every_run() -> None:
    fields = json.loads(shown("json"))
    assert fields["schema"] == "gobrrr.history/1" and fields["unread"] == [["train-9", "not a report"]]
    runs = fields["programs"][0]["runs"]
    assert [each["state"] for each in runs] == ["sound", "sound", "failed", "sound", "sound"]
    assert runs[3]["differences"][0] == {"what": "commit", "before": "a1b2c3d", "now": "d4e5f6a"}
    assert runs[3]["step_since"]["ratio"] == pytest.approx(1.32) and runs[4]["step_change"] is None


def test_markdown_has_a_row_for_each_run() -> None:
    assert len(re.findall(r"^\| \d \|", shown("markdown"), re.MULTILINE)) == 5


def charts() -> list[ET.Element]:
    (program,) = history_page.parts(SAMPLE, View())["programs"]
    return [ET.fromstring(str(drawn)) for _, drawn in program["charts"]]


def places(chart: ET.Element) -> list[tuple[float, float]]:
    return [(float(point.attrib["cx"]), float(point.attrib["cy"])) for point in chart.iter("circle")]


def test_steps_stand_to_scale_with_their_intervals_and_the_failed_run_is_left_out() -> None:
    chart = charts()[0]
    points = places(chart)
    heights = {number: points[at][1] for at, number in enumerate((1, 2, 4, 5))}
    ns = {1: 100, 2: 101, 4: 132, 5: 500}
    slopes = {(heights[a] - heights[b]) / (ns[b] - ns[a]) for a, b in pairwise(ns)}
    assert max(slopes) == pytest.approx(min(slopes), rel=0.02)
    steps = [b[0] - a[0] for a, b in pairwise(points)]
    assert steps[1] == pytest.approx(2 * steps[0], rel=0.01)
    whiskers = [line for line in chart.iter("line") if line.attrib["class"] == "whisker"]
    assert len(whiskers) == 4
    long = float(whiskers[2].attrib["y1"]) - float(whiskers[2].attrib["y2"])
    assert long == pytest.approx(2 * 1.32 * max(slopes), rel=0.05)


def test_an_interval_stays_inside_its_chart() -> None:
    wide = run(100, step=rules_report(100, 0.6).step)
    found = history("", [Kept(str(at), at, each) for at, each in enumerate((run(100), wide))])
    (program,) = history_page.parts(found, View())["programs"]
    lines = ET.fromstring(str(program["charts"][0][1])).iter("line")
    assert all(float(line.attrib["y2"]) > 0 for line in lines if line.attrib["class"] == "whisker")


def test_runs_of_two_computers_are_not_joined() -> None:
    joined = [line.attrib["points"].split() for line in charts()[0].iter("polyline")]
    assert [len(points) for points in joined] == [3, 1]


def test_they_are_not_joined_across_a_run_that_has_no_peak() -> None:
    every = [run(100, peak=GIB), run(100, peak=GIB), run(90, host="there", peak=0), run(90, host="there", peak=GIB)]
    found = history("", [Kept(str(at), at, each) for at, each in enumerate(every)])
    (program,) = history_page.parts(found, View())["programs"]
    peaks = ET.fromstring(str(program["charts"][1][1])).iter("polyline")
    assert [len(line.attrib["points"].split()) for line in peaks] == [2, 1]


def test_the_run_with_which_it_changed_has_its_name() -> None:
    for chart in charts():
        names = [text.text for text in chart.iter("text") if text.text and text.text.startswith("run ")]
        assert names == ["run 4"]


def test_a_strip_says_for_each_run_whether_it_has_the_finding() -> None:
    (program,) = history_page.parts(SAMPLE, View())["programs"]
    strips = {code: [title.text for title in ET.fromstring(str(strip)).iter("title")]
              for code, strip, _ in program["findings"]}  # fmt: skip
    assert strips["BRR105"] == ["run 1 has it not", "run 2 has it not", "run 3 is failed", "run 4 has it",
                                "run 5 has it"]  # fmt: skip
    assert set(strips) == {"BRR401", "BRR105"}


@pytest.mark.parametrize("word", page_samples.HOSTILE, ids=range(len(page_samples.HOSTILE)))
def test_no_text_makes_an_element_or_an_attribute(word: str) -> None:
    tame, taken = (Parsed(to_html(page_samples.with_texts(SAMPLE, each, KEEP))) for each in ("tame", word))
    assert taken.elements == tame.elements
    assert taken.others == tame.others == [] and taken.open == []
    assert "\x1b" not in formats.render(page_samples.with_texts(SAMPLE, word, KEEP), "text", View()).decode()


@pytest.mark.parametrize("began", [0, -1, 1 << 62, -(1 << 62)])
def test_any_time_can_be_told(began: int) -> None:
    assert told.when(began)
