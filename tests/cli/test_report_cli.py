"""`gobrrr report`: finds the run, renders it in every form, and says what is wrong with what is not a report."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from gobrrr.cli.main import main
from gobrrr.cli.reading.report import find, prepare, run
from gobrrr.errors import GobrrrError, TraceError
from gobrrr.report.forms.json import from_json, to_json
from gobrrr.report.text.report import brief, render
from tests.support import report_samples as samples
from tests.support.shown import as_comment


def call(*argv: str) -> int:
    """The verb as the command line calls it."""
    parser = argparse.ArgumentParser()
    prepare(parser)
    return run(parser.parse_args(argv))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs below .gobrrr, the starved one the later."""
    for age, (name, report) in enumerate((("b-late", samples.starved()), ("z-early", samples.balanced()))):
        folder = tmp_path / ".gobrrr" / name
        folder.mkdir(parents=True)
        (folder / "report.json").write_bytes(to_json(report))
        os.utime(folder / "report.json", ns=(10**18 - age * 10**9,) * 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_latest_run_is_shown(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert call() == 0
    assert capsys.readouterr().out == brief(samples.starved(), root=str(runs))
    assert call("-v") == 0
    assert capsys.readouterr().out == render(samples.starved(), root=str(runs))


@pytest.mark.parametrize("path", [".gobrrr/z-early", ".gobrrr/z-early/report.json"])
def test_a_run_by_its_folder_or_file(runs: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(path) == 0
    assert capsys.readouterr().out.startswith("Balanced: ")


def test_json_is_the_same_bytes_again(runs: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    told = [(call("--format", "json"), capsysbinary.readouterr().out) for _ in range(2)]
    assert told[0] == told[1] and told[0][0] == 0
    assert to_json(from_json(told[0][1])) == to_json(samples.starved())


@pytest.mark.parametrize(
    ("name", "start"), [("r.json", b'{\n  "schema"'), ("r.md", b"**Data"), ("r.txt", b"Data loading")]
)
def test_the_form_follows_the_suffix(runs: Path, name: str, start: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("-o", name) == 0
    assert Path(name).read_bytes().startswith(start)
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in runs.iterdir()) == [".gobrrr", name]


@pytest.mark.parametrize("form", ["markdown", "md"])
def test_format_outranks_the_suffix(form: str, runs: Path) -> None:
    assert call("--format", form, "-o", "r.txt") == 0
    assert Path("r.txt").read_text(encoding="utf-8") == as_comment(samples.starved())


@pytest.mark.parametrize("verb", ["run", "tune", "prove"])
def test_a_report_is_no_folder(verb: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They write a folder after -o: whoever names a page there is told how to get one, before anything runs."""
    assert main([verb, "-o", "page.html", "train.py"]) == 2
    assert "page.html would be a folder here; gobrrr report -o page.html writes" in capsys.readouterr().err
    assert [path.name for path in runs.iterdir()] == [".gobrrr"]


def test_the_source_line_is_quoted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("\n" * 40 + "    for x, y in loader:\n")
    call()
    assert "train.py:41 main  for x, y in loader:" in capsys.readouterr().out


def test_no_run_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GobrrrError, match=r"\.gobrrr: no report\.json here \(make one with: gobrrr run"):
        call()


def test_what_is_not_a_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(TraceError, match=r"report\.json: not a report"):
        call(str(tmp_path))


def test_a_folder_that_cannot_be_written_keeps_the_older_file(runs: Path) -> None:
    Path("taken").mkdir()
    with pytest.raises(GobrrrError, match="taken: "):
        call("-o", "taken")
    with pytest.raises(GobrrrError, match=r"absent/r\.json: No such file"):
        call("-o", "absent/r.json")
    assert sorted(path.name for path in runs.iterdir()) == [".gobrrr", "taken"]


def test_find_prefers_the_report_in_the_folder(runs: Path) -> None:
    Path(".gobrrr/report.json").write_bytes(to_json(samples.unreliable()))
    assert find(Path(".gobrrr")) == Path(".gobrrr/report.json")


def test_what_is_read_is_not_overwritten(runs: Path) -> None:
    file = runs / ".gobrrr" / "b-late" / "report.json"
    before = file.read_bytes()
    (runs / "link.json").symlink_to(file)
    for output in (file, runs / "link.json"):
        with pytest.raises(GobrrrError, match="would be overwritten"):
            call(str(file), "-o", str(output))
    journal = file.parent / "rank0.journal"
    journal.write_bytes(b"E")
    for word, output in ((file, journal), (file.parent, journal)):
        with pytest.raises(GobrrrError, match="would be overwritten"):
            call(str(word), "-o", str(output))
    assert file.read_bytes() == before and journal.read_bytes() == b"E"
