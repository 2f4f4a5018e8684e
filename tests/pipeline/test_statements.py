"""The statements at the lines of a step, as long as the file is as it was."""

from __future__ import annotations

from gobrrr.ledger.model.ledger import LineGroup, WorkerGroup
from gobrrr.pipeline.statements import with_statements
from gobrrr.recording.model.facts import Span
from tests.support.handmade import MS, Case

TEXT = """
def forward(x):
    for row in x:
        with torch.no_grad():
            y = torch.cat(
                ["a", row],
            )
    return [
        y for y in x]
"""
LATER = 1 << 62


def statements(tmp_path, *lines: int, began: int = LATER, ms: float = 10):
    file = tmp_path / "program.py"
    file.write_text(TEXT)
    groups = tuple(LineGroup((Span(str(file), line, "forward"),), ms * MS, "other") for line in lines)
    return with_statements(Case(extra={"lines": groups}).ledger, began).statements


def test_a_statement_is_whole_and_knows_what_is_around_it_in_its_function(tmp_path):
    middle, header, last = statements(tmp_path, 6, 3, 9)
    assert middle.text == "y = torch.cat(['a', row])" and middle.around == ("with torch.no_grad()", "for row in x")
    assert header.text == "for row in x" and header.around == ()
    assert last.text == "return [y for y in x]"
    assert last.module.startswith("def forward(x):\n    for row in x:") and last.module == middle.module


def test_a_file_that_was_changed_since_says_nothing(tmp_path):
    (tmp_path / "program.py").write_text(TEXT)
    assert not statements(tmp_path, 6, began=(tmp_path / "program.py").stat().st_mtime_ns - 1)


def test_lines_of_no_weight_or_without_a_file_are_not_read(tmp_path):
    assert not statements(tmp_path, 6, ms=0.1) and not statements(tmp_path, 77)
    gone = LineGroup((Span(str(tmp_path / "none.py"), 3),), 50 * MS, "other")
    near = LineGroup((Span("program.py", 3),), 50 * MS, "other")
    assert not with_statements(Case(extra={"lines": (gone, near)}).ledger, LATER).statements


def test_workers_lines_are_read_whatever_they_take(tmp_path):
    (tmp_path / "program.py").write_text(TEXT)
    group = WorkerGroup(0, "getitem", (Span(str(tmp_path / "program.py"), 3),), 1.0)
    (found,) = with_statements(Case(extra={"workers": (group,)}).ledger, LATER).statements
    assert found.text == "for row in x"
