"""The table of ops in the terminal, and the options that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.cli.main import main
from gobrrr.ledger.model import WAYS
from gobrrr.ledger.model.op_tables import OpRow
from gobrrr.report.forms.formats import SORTS
from gobrrr.report.html.report_page import unknown
from gobrrr.report.told.ops import grouped
from tests.pipeline.test_files import NUM, event, training, write
from tests.support.page_samples import HOSTILE


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    events = training(comm=100)
    for i in range(NUM):
        for j in range(12):
            at = 1000 * i + 400 + 30 * j
            events += [event(f"nn.Module: Linear_{j}", at, 20, "python_function"), event(f"aten::op{j}", at, 5 + j)]
    return str(write(tmp_path / "t.json", events))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(list(words)) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize("by", WAYS)
def test_it_fits(
    by: str, columns: int, trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = said(capsys, "diagnose", trace, "--by", by)
    assert max(map(len, lines)) <= columns and lines[0].startswith("All ops by ")


def test_it_has_so_many_rows_sorted_as_asked(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "diagnose", trace, "--by", "module", "--sort", "self", "--ops", "3")
    assert [line.split()[0] for line in lines[3:6]] == ["(other)", "Linear_11", "Linear_10"]
    assert lines[-1].startswith("10 more, see --ops N and --format json; all ops: ")
    by_name = said(capsys, "diagnose", trace, "--sort", "name", "--ops", "2")
    assert [line.split()[0] for line in by_name[3:5]] == ["mm", "op0"]


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_is_one(sort: str, trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "diagnose", trace, "--sort", sort)
    assert sort == "name" or hasattr(OpRow, SORTS[sort])


def test_the_number_may_be_left_out_before_a_file(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not said(capsys, "diagnose", "--ops", trace)[0].startswith("All ops by ")
    assert said(capsys, "diagnose", "--ops", "2", trace)[0].startswith("All ops by op")
    assert main(["diagnose", "--ops", "0", trace]) == 2


@pytest.mark.parametrize("number", [1, 9, 10, 11])
def test_every_number_means_a_table_of_so_many_rows(
    number: int, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "diagnose", trace, "--ops", str(number))
    assert lines[0].startswith("All ops by op") and len(lines[3 : lines.index("", 3)]) == number
    assert said(capsys, "diagnose", trace, "--by", "op", "--ops") == said(capsys, "diagnose", trace, "--ops", "10")


@pytest.mark.parametrize("sort", ["calls", "average"])
def test_a_line_has_ops_and_no_calls(sort: str, trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "diagnose", trace, "--by", "line")[2].split()[-4:] == ["ops", "FLOP/s", "of", "peak"]
    assert main(["diagnose", trace, "--by", "line", "--sort", sort]) == 2
    assert f"lines cannot be sorted by {sort}" in capsys.readouterr().err


def test_it_is_written_into_a_file_too(trace: str) -> None:
    assert main(["diagnose", trace, "--by", "line", "-o", "x.txt"]) == 0
    assert "t.json" not in Path("x.txt").read_text() and "train.py:30" in Path("x.txt").read_text()


def test_what_was_not_recorded_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write(tmp_path / "t.json", [event("aten::mm", 0, 50)]))
    assert said(capsys, "diagnose", trace, "--by", "module") == [
        "no ops by module: modules were not recorded (record it with with_stack=True, which names modules",
        "that are not compiled)",
    ]


def test_the_page_has_a_table_of_each_and_says_what_it_lacks(trace: str, tmp_path: Path) -> None:
    from gobrrr.pipeline.traces import diagnose
    from gobrrr.rules.verdict.report import Report

    report = diagnose([trace])
    assert isinstance(report, Report)
    titles = [table.title for table in grouped(report)]
    assert titles[-4:] == [f"All ops by {by}, per profiled step" for by in WAYS] and unknown(report) == []
    for table in grouped(report)[-4:]:
        assert all(len(row) == len(table.heads) for row in table.rows)
    bare = diagnose([str(write(tmp_path / "bare.json", [event("aten::mm", 0, 50)]))])
    assert isinstance(bare, Report)
    assert [line.split(": ")[0] for line in unknown(bare)] == ["No ops by line", "No ops by module"]


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_names_only_print(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [event(word, 0, 50), event(f"nn.Module: {word}_0", 0, 60, "python_function")]
    trace = str(write(tmp_path / "t.json", events))
    for by in ("op", "module"):
        assert all(line.isprintable() for line in said(capsys, "diagnose", trace, "--by", by))
