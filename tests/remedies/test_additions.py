"""A rule, a remedy, a form and a format of traces are added by what is new alone: no other file changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobrrr import remedies, rules
from gobrrr.recording.trace_files import sources
from gobrrr.recording.trace_files.kineto import read_trace
from gobrrr.recording.trace_files.sources import Source, read
from gobrrr.remedies import registry
from gobrrr.report.forms import formats
from gobrrr.rules.model.finding import REGISTRY
from gobrrr.rules.pages import codes
from tests.pipeline.grown import grow
from tests.support import report_samples

RULE = """
from gobrrr.rules.model.finding import rule

@rule("BRR299", "bandwidth", needs={"plain"})
def elixir_missing(ledger, machine):
    yield from ()
"""
REMEDY = """
from gobrrr.remedies.model import Remedy

class Elixir(Remedy):
    name, title, safety, place, codes = "elixir", "makes all well", "exact", "environment", ("BRR299",)
    by_hand = "drink()"

    def apply(self, seams):
        seams.applied(self.name)
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files stand beside ours."""
    band = tmp_path / "band"
    band.mkdir()
    (band / "elixir_rule.py").write_text(RULE)
    (band / "elixir.py").write_text(REMEDY)
    (band / "elixir.md").write_text("# elixir: makes all well\n")
    for package in (rules, remedies):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    yield tmp_path
    REGISTRY.pop("BRR299", None)
    for name in [name for name in sys.modules if name.endswith((".elixir", ".elixir_rule"))]:
        del sys.modules[name]


def test_a_rule_is_a_function_in_a_file(added: Path) -> None:
    (added / "band" / "elixir.py").unlink()  # it is a remedy's
    assert rules.load()["BRR299"].name == "elixir-missing"
    assert "BRR299" not in codes()  # which a test of pages would ask for


def test_a_remedy_is_a_module_with_a_page(added: Path) -> None:
    assert "elixir" in registry.names()
    assert registry.remedy("elixir").codes == ("BRR299",)
    assert [one.name for one in registry.composed(["elixir"])] == ["elixir"]


def test_a_form_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("haiku")
    module.written = lambda report, view: report.verdict.bound  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gobrrr.report.haiku", module)
    form = formats.Format("haiku", (".haiku",), {"report": "haiku:written"})
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, form))
    assert "haiku" in formats.names() and formats.by_suffix("out.haiku") == "haiku"
    report = report_samples.starved()
    assert formats.render(report, "haiku", formats.View()).decode() == report.verdict.bound


def test_a_format_of_traces_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands before the JSON, say."""
    file = grow(1, "host").write(tmp_path / "trace.json")
    (tmp_path / "trace.mine").write_bytes(b"MINE" + file.read_bytes())

    def read_mine(path: Path, limits: object) -> object:
        (tmp_path / "inner.json").write_bytes(path.read_bytes()[4:])
        return read_trace(tmp_path / "inner.json")

    module = type(sys)("mine")
    module.read = read_mine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", module)
    monkeypatch.setattr(sources, "READERS", (sources.Reader((".mine",), b"MINE", "mine:read"), *sources.READERS))
    assert len(read(Source(str(tmp_path / "trace.mine"))).ops) == len(read(Source(str(file))).ops)
