"""A tuning's page: what was kept, every pair, no gain beside numbers that are not right, nothing hostile."""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from gobrrr.cli.reading.report import receipt_in
from gobrrr.errors import GobrrrError
from gobrrr.pipeline import tuning
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import Format, View
from gobrrr.report.html import tuning_page
from gobrrr.report.html.html import to_html
from gobrrr.report.html.pair_chart import LEFT, RIGHT, PairRow, pairs
from gobrrr.report.html.svg import WIDTH
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import Guarded, Receipt, Samples, Speedup
from tests.cli.test_report_cli import call
from tests.report.test_report_html import Parsed
from tests.support import page_samples as samples
from tests.support import report_samples

TUNED = samples.tuned()


def page(receipt: Receipt) -> str:
    return to_html(receipt, View(next_command="gobrrr run --recipe recipe.toml train.py"))


def words(content: str) -> str:
    """What a reader sees, titles of charts too, without the data."""
    return " ".join(
        re.sub(r"<style>.*?</style>|<[^>]*>", " ", content.split('<script type="application')[0], flags=re.S).split()
    )


def lines(receipt: Receipt) -> list[str]:
    return [f"{row['name']} {row['figure']}" for row in tuning_page.parts(receipt, View())["waterfall"]]


LOST = samples.OURS | {"kept"}
"""With these fields as they are nothing that was tried was kept; with all but these everything was."""


@pytest.mark.parametrize("but", [frozenset(("schema",)), samples.OURS, LOST], ids=["all", "but ours", "lost"])
@pytest.mark.parametrize("word", samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def test_no_text_of_a_receipt_makes_an_element_or_an_attribute(word: str, but: frozenset[str]) -> None:
    tame, taken = (Parsed(page(samples.with_texts(TUNED, each, but))) for each in ("tame", word))
    assert taken.elements == tame.elements
    assert taken.others == tame.others == [] and taken.open == []
    assert len(tame.elements) > (80 if len(but) == 1 else 150)


@pytest.mark.parametrize("word", samples.HOSTILE[:41], ids=range(41))
def test_the_data_block_holds_the_receipt_as_it_is(word: str) -> None:
    hostile = samples.with_texts(TUNED, word)
    block = re.findall(r'<script type="application/json" id="report">([^<]*)</script>', page(hostile))
    cleaned = word.encode("utf-8", "replace").decode()
    assert msgspec.json.decode(block[0], type=Receipt) == samples.with_texts(TUNED, cleaned)


def test_the_waterfall_goes_from_the_program_as_written_to_all_together() -> None:
    assert lines(TUNED) == ["as written 200 ms", "malloc_thresholds -40.0 ms", "fused_optimizer -80.0 ms",
                            "kept, together 83.3 ms"]  # fmt: skip


def test_what_they_bring_only_together_has_its_own_row() -> None:
    more = msgspec.structs.replace(TUNED, speedup=Speedup(4.0, 3.9, 4.1))
    assert lines(more)[-2:] == ["together -30.0 ms", "kept, together 50.0 ms"]
    less = msgspec.structs.replace(TUNED, speedup=Speedup(2.0, 1.9, 2.1))
    assert lines(less)[-2:] == ["together +20.0 ms", "kept, together 100 ms"]
    assert "less than what each brings by itself" in words(page(less))


def test_what_one_alone_brings_less_in_the_confirmation_than_in_the_race_is_said() -> None:
    one = msgspec.structs.replace(TUNED, trials=(TUNED.trials[0], TUNED.trials[-1]), kept=("malloc_thresholds",),
                                  speedup=Speedup(1.1, 1.05, 1.15))  # fmt: skip
    assert lines(one) == ["as written 200 ms", "malloc_thresholds -40.0 ms", "confirmed +21.8 ms",
                          "in fresh processes 182 ms"]  # fmt: skip
    assert "less than it did in the race" in words(page(one))


def test_what_was_measured_on_a_crowded_machine_is_not_sure() -> None:
    crowded = msgspec.structs.replace(TUNED, diagnosed_step_ns=5e7)
    assert 'class="doubtful"' in page(crowded) and 'class="doubtful"' not in page(TUNED)


def test_bars_hang_from_one_level_to_the_next() -> None:
    rows = tuning_page.parts(TUNED, View())["waterfall"]
    rects = [ET.fromstring(row["bar"]).findall("rect")[1] for row in rows]
    edges = [(float(r.attrib["x"]), float(r.attrib["x"]) + float(r.attrib["width"])) for r in rects]
    assert edges[0] == (0, WIDTH) and edges[1] == pytest.approx((800, 1000)) and edges[2] == pytest.approx((400, 800))
    assert edges[3] == pytest.approx((0, 1000 / 2.4), abs=0.1)


def test_no_gain_is_shown_that_was_not_confirmed_or_whose_numbers_are_wrong() -> None:
    """7.77 of a wrong one and 5.55 of one that looked faster stand in the data alone."""
    seen = words(page(TUNED))
    assert "7.7" not in seen and "5.5" not in seen and "2.40x (2.30 to 2.50)" in seen
    doubtful = msgspec.structs.replace(TUNED, guard=Guarded("unverified"))
    red = msgspec.structs.replace(doubtful, trials=tuple(
        msgspec.structs.replace(trial, guard=Guarded("unverified")) for trial in TUNED.trials))  # fmt: skip
    seen = words(page(red))
    assert not re.search(r"2\.4\d|2\.00x|1\.25x", seen) and "Not proven" in seen


def test_losers_say_why_and_the_guard_what_it_compared() -> None:
    seen = words(page(TUNED))
    for said in ("no g++", "4 starts of each arm would settle it", "norm 2.0 times", "in the race alone: not confirmed",
                 "compared without dropout", "loss: error against float64", "0.93", "not finite", "0.01",
                 "tuning took 6.0 min: pays for itself after 0.2 h", "pays after 400 steps", "arms wrote nowhere",
                 "gobrrr run --recipe recipe.toml train.py", "loader_workers: num=2"):  # fmt: skip
        assert said in seen, said


def test_each_four_blocks_are_a_pair_and_drift_falls_out() -> None:
    found = tuning_page.ratios(samples.blocks(1.6))
    assert len(found) == 12 and found == pytest.approx([1.6] * 12, rel=1e-6)


def test_a_sweep_that_was_cut_short_is_no_pair() -> None:
    whole = samples.blocks(2.0, 2)
    cut = Samples((1, 0, *whole.arm), (2, 2, *whole.steps), (7, 9, *whole.ns))
    assert tuning_page.ratios(cut) == pytest.approx([2.0, 2.0], rel=1e-3)
    assert tuning_page.ratios(Samples((0, 1, 1, 0), (1, 1, 1, 1), (5, 0, 5, 5))) == []
    assert tuning_page.ratios(Samples((0, 1), (1,), ())) == []


def test_pairs_of_another_objective_are_of_its_figure() -> None:
    arms, steps, ns = (0, 1, 1, 0), (1,) * 4, (10,) * 4
    held = Samples(arms, steps, ns, (1,) * 4, (400, 100, 100, 400), (2, 6, 6, 2))
    assert tuning_page.ratios(held) == pytest.approx([1.0])
    assert tuning_page.ratios(held, "memory") == pytest.approx([4.0])
    assert tuning_page.ratios(held, "throughput") == pytest.approx([3.0])


def test_a_dot_for_each_pair_lies_where_its_ratio_is() -> None:
    rows = [PairRow(1, "a", (0.5, 2.0), (0.5, 1.0, 2.0), "x"), PairRow(2, "b", (), None, "failed"),
            PairRow(3, "bad", (math.inf, math.nan, -1.0), (math.nan, 1.0, math.inf), "bad")]  # fmt: skip
    root = ET.fromstring(pairs(rows, "times as fast"))
    first, second = (float(dot.attrib["cx"]) for dot in root.findall("circle"))
    assert first == LEFT and second == WIDTH - RIGHT
    assert [path.attrib["d"].split("H")[0] for path in root.findall("path")] == [f"M{LEFT} 38"]
    assert {text.text for text in root.findall("text")} >= {"1 a", "2 b", "failed", "0.5", "1", "2"}
    assert pairs(rows[1:], "") == ""


def test_a_tuning_that_found_nothing_has_a_page() -> None:
    for receipt in (Receipt(), Receipt(measured=False), Receipt(complete=False), samples.tuned(kept=(), speedup=None)):
        content = page(receipt)
        assert Parsed(content).open == [] and 'class="doubtful"' in content


@pytest.mark.parametrize(("suffix", "said"), [("html", b"<!DOCTYPE"), ("md", b"**2.40"), ("json", b'{\n "schema"'),
                                              ("txt", b"2.40 times as fast")])  # fmt: skip
def test_report_renders_a_receipt_by_the_same_registry(tmp_path: Path, suffix: str, said: bytes) -> None:
    receipts.write(TUNED, tmp_path / "receipt.json")
    target = tmp_path / f"out.{suffix}"
    for source in (tmp_path / "receipt.json", tmp_path):
        assert call(str(source), "-o", str(target)) == 0
        assert target.read_bytes().startswith(said)
    if suffix == "json":
        assert receipts.read(target) == TUNED


def test_a_receipt_on_a_terminal_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receipts.write(TUNED, tmp_path / "other-name.json")
    assert call(str(tmp_path / "other-name.json")) == 0
    told = capsys.readouterr().out
    assert told.startswith("2.40 times as fast") and "pays for itself after 0.2 h" in told


def test_what_is_masked_is_masked_in_a_receipt_too(tmp_path: Path) -> None:
    receipts.write(samples.tuned(folder="/home/zebra", notes=("zebra",)), tmp_path / "receipt.json")
    assert call(str(tmp_path), "--redact", "zebra", "-o", str(tmp_path / "a.html")) == 0
    assert "zebra" not in (tmp_path / "a.html").read_text()


def test_a_form_that_a_receipt_does_not_have_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Format("shout", (".loud",), {"report": lambda report, view: b""})
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, fake))
    receipts.write(TUNED, tmp_path / "receipt.json")
    with pytest.raises(GobrrrError, match="a receipt cannot be written in the format shout"):
        call(str(tmp_path), "-o", str(tmp_path / "a.loud"))


def test_what_a_file_is_it_says_itself(tmp_path: Path) -> None:
    from gobrrr.report.forms.json import to_json

    file = tmp_path / "a.json"
    for content in (b"", b"{", b"[]", to_json(report_samples.balanced()), b'{"schema": "x", "a": "gobrrr.receipt/1"}'):
        file.write_bytes(content)
        assert receipt_in(file) is None
    file.write_bytes(b'{"kept": [], "schema": "gobrrr.receipt/1"}')
    assert receipt_in(file) == Receipt()
    file.write_bytes(b'{"schema": "gobrrr.receipt/9"}')
    with pytest.raises(GobrrrError, match="has the schema"):
        receipt_in(file)


def test_tune_leaves_its_page_beside_the_receipt(tmp_path: Path) -> None:
    outcome = tuning.Outcome(TUNED, tmp_path, report_samples.balanced(), 360.0)
    (tmp_path / "recipe.toml").touch()
    out = io.StringIO()
    tuning.tell(outcome, ["train.py"], out)
    content = (tmp_path / "report.html").read_text()
    assert f"--recipe {tmp_path / 'recipe.toml'} train.py" in words(content) and "report.html" in out.getvalue()


def test_the_markdown_of_a_tuning_says_the_same_and_is_escaped() -> None:
    told = formats.render(TUNED, "markdown", View()).decode()
    for said in ("| malloc\\_thresholds | 160 ms | 1.25x (1.20 to 1.30) |", "no g++", "- notes: arms wrote nowhere"):
        assert said in told
    for but in (samples.OURS, LOST):
        hostile = formats.render(samples.with_texts(TUNED, "<b>@x|y", but), "markdown", View()).decode()
        assert "<b>" not in hostile and "@x" not in hostile and "x|y" not in hostile
    assert "<details>" in hostile
