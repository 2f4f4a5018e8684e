"""The page: complete, one file that loads nothing, the same bytes twice, and closed to what stands in a recording."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.formats import View
from gobrrr.report.forms.json import from_json, to_json
from gobrrr.report.html.findings_page import page_as_html as as_html
from gobrrr.report.html.findings_page import page_of
from gobrrr.report.html.html import to_html
from gobrrr.report.told.excerpts import AROUND, excerpts
from gobrrr.rules import pages
from gobrrr.rules.verdict.report import Report
from tests.support import page_samples as samples
from tests.support import report_samples

SPOKEN = ("aria-label",)
"""Attributes that hold text out of a report."""


class Parsed(HTMLParser):
    """Elements with their attributes, in order, and the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.open: list[str] = []
        self.text: dict[str, str] = {}
        self.others: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple((name, "" if name in SPOKEN else value) for name, value in attrs)))
        if tag not in ("meta", "br", "link", "img", "input", "base"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        at = self.open[-1] if self.open else ""
        self.text[at] = self.text.get(at, "") + data

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)


def page(report: Report, **view: object) -> str:
    return to_html(report, View(steps=samples.TIMES, **view))  # type: ignore[arg-type]


BOTH = pytest.mark.parametrize("report", [samples.full(), samples.on_device()], ids=["processor", "device"])


@BOTH
@pytest.mark.parametrize("word", samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def test_no_text_of_a_report_makes_an_element_or_an_attribute(report: Report, word: str) -> None:
    plainly, told = (
        page(samples.with_texts(report, each), timeline=samples.with_texts(samples.DRAWN, each))
        for each in ("tame", word)
    )
    tame = Parsed(plainly)
    taken = Parsed(told)
    assert taken.elements == tame.elements
    assert taken.others == tame.others == [] and taken.open == []
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b\u2028-\u202e\u2066-\u2069\ud800-\udfff]", told)


@BOTH
@pytest.mark.parametrize("word", samples.HOSTILE[:41], ids=range(41))
def test_nothing_is_lost_the_data_block_holds_the_report_as_it_is(report: Report, word: str) -> None:
    hostile = samples.with_texts(report, word)
    block = re.findall(r'<script type="application/json" id="report">([^<]*)</script>', page(hostile))
    assert len(block) == 1 and block[0].isascii()
    assert from_json(block[0].encode()) == from_json(to_json(hostile))


@BOTH
def test_the_policy_allows_our_style_and_script_alone(report: Report) -> None:
    parsed = page(report)
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', parsed)[0].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("style", "script"):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", parsed, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
        assert len(inline) == 1 and f"{tag}-src 'sha256-{digest}'" in policy


@BOTH
def test_nothing_is_loaded_and_nothing_is_styled_or_scripted_in_place(report: Report) -> None:
    for tag, attributes in Parsed(page(report, timeline=samples.DRAWN)).elements:
        names = dict(attributes)
        assert tag not in ("link", "img", "iframe", "object", "embed", "form", "base", "image", "use")
        assert not names.keys() & {"src", "srcset", "style", "action", "background", "xlink:href"}
        assert not any(name.startswith("on") for name in names)
        assert tag == "a" or "href" not in names
    assert not re.search(r"@import|url\((?!#)", page(report, timeline=samples.DRAWN))


@BOTH
def test_the_same_report_is_the_same_bytes_and_small(report: Report) -> None:
    written = from_json(to_json(report))  # JSON rounds shares
    first = page(written)
    assert first == page(from_json(to_json(written)))
    assert len(first.encode()) < 200_000


def test_a_page_of_the_longest_run_is_below_its_bound() -> None:
    from gobrrr.report.timeline.timeline import MOST_STEPS as MOST

    times = tuple(samples.TIMES[0]._replace(number=i) for i in range(2 * MOST))
    assert len(to_html(samples.full(), View(steps=times)).encode()) < 1_500_000


def test_everything_that_the_report_says_is_on_the_page() -> None:
    report = samples.full()
    text = " ".join(re.sub(r"<[^>]*>", " ", page(report).split('<script type="application')[0]).split())
    for said in (report.verdict.sentence, "unattributed", "100.0 %", "62.0 ms", "speed of light", "Does not grow"):
        assert said.lower() in text.replace("&#39;", "'").lower()
    for finding in report.findings:
        assert finding.message.rstrip(".") in text and finding.code in text
    for op in report.ops:
        assert op.name.removeprefix("aten::") in text
    assert all(name in text for name, ns in report.phases if ns)
    assert all(account.account.replace("_", " ") in text for account in report.ledger)


@BOTH
def test_hovering_over_an_op_of_the_roofline_says_op_line_and_shapes(report: Report) -> None:
    chart = page(report).split('aria-label="Roofline')[1].split("</svg>")[0]
    said = re.findall(r"<title>(.*?)</title>", chart)
    assert len(said) >= 5 and all("train.py:41 in main, 32x512, 512x8" in each and "aten::op" in each for each in said)


def test_a_report_of_nothing_has_a_page() -> None:
    from gobrrr.rules.verdict.report import Step, Verdict

    found = to_html(Report(verdict=Verdict("unreliable", "Nothing was seen"), step=Step(0, 0, 0)), View())
    assert "Nothing was seen" in found and Parsed(found).open == []


def test_an_excerpt_shows_the_lines_around_and_marks_the_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("".join(f"    line_{i} = '<b>'\n" for i in range(1, 61)))
    found = page(samples.full(), root=str(tmp_path))
    assert "line_41 = &#39;&lt;b&gt;&#39;" in found
    assert "line_37 " in found and "line_45 " in found and "line_36 " not in found and "line_46 " not in found
    marked = re.findall(r'class="it">.*?\n', found)
    assert marked and all("line_41 " in each for each in marked)


def spot(file: str, line: int = 1) -> Span:
    return Span(file, line, "f")


def test_source_that_cannot_be_shown_says_why(tmp_path: Path) -> None:
    read = excerpts(str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "outside.py").write_text("secret = 1\n")
    (tmp_path / "home" / "short.py").write_text("a = 1\n")
    (tmp_path / "home" / "link.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(tmp_path / "home" / "pipe.py")
    (tmp_path / "home" / "huge.py").write_bytes(b"#" * (5 << 20))
    (tmp_path / "home" / "folder.py").mkdir()
    for file, line, why in (
        ("gone.py", 1, "not any more"), ("short.py", 9, "has 1 line now"), ("short.py", 0, "has 1 line now"),
        ("../outside.py", 1, "not read"), ("link.py", 1, "not read"), ("/etc/passwd", 1, "not read"),
        ("pipe.py", 1, "cannot be read"), ("folder.py", 1, "cannot be read"), ("huge.py", 1, "too large"),
        ("\x00.py", 1, "cannot be read"), ("a" * 100_000 + ".py", 1, "cannot be read"),
    ):  # fmt: skip
        found = read(spot(file, line))
        assert found.lines == () and why in found.doubt, file[:20]


def test_source_that_changed_since_is_shown_with_a_doubt(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("\tfor x in y:\n\t\tpass  # API_KEY='sk-abcdefghijklmnopqrstuvwxyz123456'\n\n\n")
    then = file.stat().st_mtime_ns
    same, later = (excerpts(str(tmp_path), recorded_ns=then + late)(spot("a.py")) for late in (1, -1))
    assert same.doubt == "" and later.doubt.startswith("The file was changed")
    assert same.lines == later.lines and AROUND >= 2
    assert same.lines[0] == (1, "for x in y:") and same.lines[1][1].startswith("    pass") and len(same.lines) == 2
    assert "abcdefghij" not in same.lines[1][1]


def test_the_page_of_a_code_is_there_and_a_code_is_no_path() -> None:
    assert "<h4>How it is detected</h4>" in page_of("BRR105") and "<code>need_weights=True</code>" in page_of("BRR105")
    for code in ("BRR999", "../pages/BRR105", "BRR105\n", "BRR10\u0665", "", "BRR105.md"):
        assert page_of(code) == ""


@pytest.mark.parametrize("code", pages.codes())
def test_every_page_of_a_code_is_whole(code: str) -> None:
    told = Parsed(str(page_of(code)))
    assert told.open == [] and {tag for tag, _ in told.elements} <= {"h4", "p", "pre", "code", "b", "a"}
    heads = re.findall(r"^## (.*)$", pages.text_of(code), re.MULTILINE)
    assert len(heads) == sum(tag == "h4" for tag, _ in told.elements)


def test_markup_in_a_page_stays_text() -> None:
    assert as_html("a <b> `x < y` **c** https://a.example/x?y=1&z=2.") == (
        "<p>a &lt;b&gt; <code>x &lt; y</code> <b>c</b> "
        '<a href="https://a.example/x?y=1&amp;z=2" rel="noreferrer">https://a.example/x?y=1&amp;z=2</a>.</p>'
    )


def test_a_redacted_page_holds_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("\n" * 40 + "zebra = 1\n")
    found = to_html(
        report_samples.starved(), View(str(tmp_path), mask=lambda text: text.replace("zebra", "<redacted>"))
    )
    assert "zebra" not in found and "&lt;redacted&gt; = 1" in found


def test_the_data_block_is_json_for_anybody() -> None:
    block = re.findall(r'id="report">([^<]*)</script>', page(samples.full()))[0]
    assert json.loads(block)["schema"] == "gobrrr.report/1"
