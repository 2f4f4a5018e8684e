"""The registry of forms: one place to add one, and every verb goes through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.cli.reading import diagnose
from gobrrr.cli.reading import report as verb
from gobrrr.errors import GobrrrError
from gobrrr.report.forms import csv, formats
from gobrrr.report.forms.formats import Format, View
from gobrrr.report.forms.json import to_json
from tests.cli.test_report_cli import call
from tests.support import report_samples as samples


@pytest.mark.parametrize(
    ("file", "form"),
    [("a.html", "html"), ("a.HTM", "html"), ("a.json", "json"), ("a.md", "markdown"), ("a.txt", "text"), ("a", "text"),
     ("a.html/b", "text"), ("a.perfetto.json", "perfetto"), ("a.perfetto.json.gz", "perfetto")],
)  # fmt: skip
def test_the_suffix_means_a_form(file: str, form: str) -> None:
    assert formats.by_suffix(file) == form


def test_a_form_that_is_added_in_one_place_is_there_by_name_and_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "shouted", lambda report, view: report.verdict.sentence.upper(), raising=False)
    fake = Format("shout", (".loud",), {"report": "forms.csv:shouted"})
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, fake))
    (tmp_path / "report.json").write_bytes(to_json(samples.balanced()))
    for words in (["-o", str(tmp_path / "a.loud")], ["--format", "shout", "-o", str(tmp_path / "b.txt")]):
        assert call(str(tmp_path), *words) == 0
        assert Path(words[-1]).read_text().startswith("BALANCED: ")


def test_names_are_unique_and_no_suffix_has_two_forms() -> None:
    suffixes = [suffix for form in formats.FORMATS for suffix in form.suffixes]
    assert len(set(suffixes)) == len(suffixes) and len(set(formats.names())) == len(formats.FORMATS)


@pytest.mark.parametrize("form", [name for name in formats.names() if name != "csv"])
def test_every_form_of_a_report_has_the_verdict(form: str) -> None:
    assert b"Balanced" in formats.render(samples.balanced(), form, View())


def test_a_job_of_several_traces_has_no_table_of_ops(tmp_path: Path) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    diagnose.prepare(parser)
    args = parser.parse_args(["a.json", "b.json", "-o", str(tmp_path / "x.csv")])
    with pytest.raises(
        GobrrrError,
        match=r"a job cannot be written in the format csv \(end the name after -o in one of \.txt, \.json, \.md",
    ):
        diagnose.run(args)


def test_what_is_masked_is_masked_in_quoted_source_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_bytes(to_json(samples.starved()))
    Path("train.py").write_text("\n" * 40 + "    for x, y in project_zebra:  # AKIAIOSFODNN7EXAMPLE\n")
    for name in ("a.html", "a.txt"):
        assert call(".", "--redact", "zebra", "-o", name) == 0
        assert "in project_" in Path(name).read_text() and "zebra" not in Path(name).read_text()
    assert call(".", "--redact", "zebra") == 0
    assert "zebra" not in capsys.readouterr().out
    assert verb.find(Path()) == Path("report.json")
