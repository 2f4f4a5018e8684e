"""The page of a comparison: both steps on one scale, what became faster and slower, every op, nothing hostile."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gobrrr.cli.main import main
from gobrrr.ledger.comparison import Comparison, OpRatio
from gobrrr.ledger.ops.op_times import OpTime
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from gobrrr.report.html import comparison_page
from gobrrr.report.html.html import to_html
from tests.pipeline.test_files import training, write
from tests.report.test_report_html import Parsed
from tests.report.test_tuning_page import words
from tests.support import page_samples as samples

FOUND = samples.compared()


@pytest.mark.parametrize("but", [frozenset(("schema",)), frozenset(("schema", "codes", "appeared", "vanished"))],
                         ids=["all", "but codes"])  # fmt: skip
@pytest.mark.parametrize("word", samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def test_no_text_of_a_comparison_makes_an_element_or_an_attribute(word: str, but: frozenset[str]) -> None:
    tame, taken = (Parsed(to_html(samples.with_texts(FOUND, each, but))) for each in ("tame", word))
    assert taken.elements == tame.elements
    assert taken.others == tame.others == [] and taken.open == []


@pytest.mark.parametrize("word", samples.HOSTILE[:41], ids=range(41))
def test_the_data_block_holds_the_comparison_as_it_is(word: str) -> None:
    content = to_html(samples.with_texts(FOUND, word))
    block = re.findall(r'<script type="application/json" id="report">([^<]*)</script>', content)
    cleaned = word.encode("utf-8", "replace").decode()
    assert msgspec.json.decode(block[0], type=Comparison) == samples.with_texts(FOUND, cleaned)


def test_both_steps_are_drawn_on_the_scale_of_the_longer_one() -> None:
    sides = comparison_page.parts(FOUND)["sides"]
    widths = [sum(float(rect.attrib["width"]) for rect in ET.fromstring(side["chart"]).iter("rect")) for side in sides]
    assert widths == pytest.approx([1000, 500])


def test_accounts_stand_side_by_side_and_sum_to_the_steps() -> None:
    found = comparison_page.parts(FOUND)
    rows = {row["name"]: (row["a"], row["b"], row["change"]) for row in found["accounts"]}
    assert rows == {"data wait": ("120 ms", "0 ns", "-120 ms"), "compute": ("80.0 ms", "80.0 ms", "+0 ns"),
                    "dispatch": ("0 ns", "20.0 ms", "+20.0 ms")}  # fmt: skip
    assert found["totals"] == ["200 ms", "100 ms"] and found["change"] == "-100 ms"


def test_what_became_faster_and_what_slower_the_most_first() -> None:
    faster, slower = comparison_page.parts(FOUND)["changed"]
    assert [(row["name"], row["change"], row["ratio"]) for row in faster["rows"]] == [
        ("mm", "-61.0 ms", "3.03x"), ("gone", "-4.00 ms", "only A"), ("mkl | cudnn", "-1.00 ms", "2.00x")]  # fmt: skip
    assert [(row["name"], row["change"], row["ratio"]) for row in slower["rows"]] == [
        ("gelu", "+8.00 ms", "0.33x"), ("new", "+3.00 ms", "only B")]  # fmt: skip
    widths = [float(ET.fromstring(row["bar"]).findall("rect")[1].attrib["width"])
              for row in (*faster["rows"], *slower["rows"])]  # fmt: skip
    assert widths == pytest.approx([1000, 65.57, 16.39, 131.15, 49.18], abs=0.01)


def test_of_very_many_ops_the_first_are_listed_and_so_is_it_said() -> None:
    many = tuple(OpRatio(name=f"op{i}", shapes="", a=OpTime(1, 1e9 - i), b=None) for i in range(5000))
    content = to_html(samples.compared(ops=many))
    assert "The first 200 of 5000 ops are listed" in content and len(content) < 1_500_000
    assert "op199<" in content and "op200<" not in content and "and 4988 more" in content


def test_a_difference_that_is_not_sure_is_marked_so() -> None:
    for low, high, doubtful in ((1.9, 2.1, False), (0.4, 0.6, False), (0.9, 2.1, True), (math.nan, math.nan, True)):
        content = to_html(samples.compared(low=low, high=high))
        assert ('class="doubtful"' in content) == doubtful
    bare = samples.compared(ops=(), appeared=(), vanished=(), speedup=math.nan, a=samples.compared().b)
    assert Parsed(to_html(bare)).open == []


def test_what_is_not_comparable_is_never_sure() -> None:
    assert 'class="doubtful"' in to_html(samples.compared(verdict="Not comparable: other models."))


def test_the_page_says_all_of_it() -> None:
    seen = words(to_html(FOUND))
    for said in (FOUND.verdict, "Data-bound: it waits", "a.json", "BRR405", "BRR504", "BRR000", "Faster in B"):
        assert said in seen


def traces(folder: Path) -> list[str]:
    return [str(write(folder / f"{name}.json", training(wait=wait))) for name, wait in (("a", 500), ("b", 10))]


@pytest.mark.parametrize(
    ("suffix", "start"),
    [("html", "<!DOCTYPE"), ("md", "**B takes 1.00 times as long per step as A"), ("json", "{"), ("txt", "B takes")],
)
def test_the_verb_writes_every_form(
    tmp_path: Path, suffix: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / f"out.{suffix}"
    assert main(["compare", *traces(tmp_path), "-o", str(target)]) == 0
    content = target.read_text()
    assert content.startswith(start) and "BRR405" in content and capsys.readouterr().out == ""
    if suffix == "json":
        assert json.loads(content)["vanished"] == ["BRR405"]


def test_the_number_of_ops_is_as_asked_for(tmp_path: Path) -> None:
    for num, rows in ((0, 0), (1, 1)):
        target = tmp_path / "out.md"
        assert main(["compare", *traces(tmp_path), "--ops", str(num), "-o", str(target)]) == 0
        assert target.read_text().count("\n| mm ") == rows


def test_a_form_that_a_comparison_lacks_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = formats.Format("shout", (".loud",), {"report": lambda report, view: b""})
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, fake))
    assert main(["compare", "absent", "absent", "-o", "a.loud"]) == 2
    assert "a comparison cannot be written in the format shout" in capsys.readouterr().err


def test_the_markdown_is_escaped() -> None:
    hostile: Any = samples.with_texts(FOUND, "<b>@x|y")
    told = formats.render(hostile, "markdown", View()).decode()
    bare = re.sub("`[^`]*`", "", told)
    assert bare != told and "<b>" not in bare and "@x" not in bare and not re.search(r"(?<!\\)\|y", told)
