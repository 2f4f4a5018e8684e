"""`gobrrr run` leaves a page beside its recording, for its owner alone, with the steps of the run and the source."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import PROGRAMS, Runner


def test_a_run_leaves_a_page_and_its_folder_can_be_drawn_again(gobrrr: Runner, tmp_path: Path) -> None:
    assert gobrrr("run", "-o", "kept", PROGRAMS / "ends.py", "normally", 60).code == 0
    page = tmp_path / "kept" / "report.html"
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o600
    assert "<h2>Steps over the run</h2>" in text and "<h2>Where the step goes</h2>" in text
    again = gobrrr("report", "kept", "-o", "again.html")
    assert again.code == 0 and again.out == again.err == b""
    drawn = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "<h2>Steps over the run</h2>" in drawn
    for told in (text, drawn):
        assert "line of time" in told and "ends.py:23" in told and 'class="slice k-op"' in told
    (tmp_path / "kept" / "rank0.journal").unlink()
    assert gobrrr("report", "kept", "-o", "alone.html").code == 0
    assert "<h2>Steps over the run</h2>" not in (tmp_path / "alone.html").read_text(encoding="utf-8")


def test_help_imports_no_renderer(plainly: Runner, tmp_path: Path) -> None:
    heavy = "{'jinja2', 'markupsafe', 'rich', 'msgspec', 'numpy'}"
    verbs = "from gobrrr.cli.reading import diagnose, report; from gobrrr.cli.verbs import run, tune"
    check = f"import sys; {verbs}; print({heavy} & set(sys.modules))"
    (tmp_path / "look.py").write_text(check)
    assert plainly("look.py").out == b"set()\n"
