"""Places: short in a sentence, openable in a list; and a report from a stranger reads nothing but source lines."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest

from gobrrr.recording.model.facts import Span
from gobrrr.rules.verdict.place import MAX_SOURCE_BYTES, reader, short, shown


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (Span("/a/b/train.py", 41, "main"), "train.py:41 in main"),
        (Span("train.py", 41, "<module>"), "train.py:41"),
        (Span("train.py", 44, "main.<locals>.closure"), "train.py:44 in main.closure"),
        (Span("/a/pkg/__init__.py", 3), "pkg/__init__.py:3"),
        (Span(r"C:\Users\a b\train.py", 41, "main"), "train.py:41 in main"),
        (Span(r"pkg\__init__.py", 3), "pkg/__init__.py:3"),
        (Span("", 0), ":0"),
        (Span("/tmp/ipykernel_12/800435793.py", 2, "<module>"), "cell:2"),
        (Span("<ipython-input-3-5d41402abc4b>", 2, "step"), "cell 3:2 in step"),
    ],
)
def test_short(span: Span, text: str) -> None:
    assert short(span) == text


@pytest.mark.parametrize(
    ("file", "root", "text"),
    [
        ("/srv/p/src/a.py", "/srv/p", "src/a.py:7"),
        ("/srv/pp/a.py", "/srv/p", "/srv/pp/a.py:7"),
        ("src/a.py", "/srv/p", "src/a.py:7"),
        ("/srv/p/a.py", "", "/srv/p/a.py:7"),
    ],
)
def test_shown(file: str, root: str, text: str) -> None:
    assert shown(Span(file, 7), root) == text


def test_the_line_itself(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"one = 1\n\n    two = 2  # \xff\n")
    read = reader(str(tmp_path))
    assert read("a.py", 3) == "two = 2  # \ufffd"
    assert read(str(tmp_path / "a.py"), 1) == "one = 1"


def test_a_cells_line_is_had_from_its_own_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = tmp_path / "ipykernel_12" / "800435793.py"
    cell.parent.mkdir()
    cell.write_text("on disk\n")
    read = reader(str(tmp_path))
    assert read(str(cell), 1) == "", "a report may name any file so"
    monkeypatch.setitem(linecache.cache, str(cell), (20, None, ["import torch\n", "  net(x)\n"], str(cell)))
    assert [read(str(cell), line) for line in (1, 2, 3)] == ["import torch", "net(x)", ""]


def test_nothing_but_python_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.env").write_text("TOKEN=1\n")
    (tmp_path / "huge.py").write_bytes(b"x" * (MAX_SOURCE_BYTES + 1))
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "a.py").write_text("x = 1\n")
    read = reader(str(tmp_path))
    for file in ("secret.env", "huge.py", "folder.py", "pipe.py", "absent.py", "a\0.py", "x" * 5000 + ".py", ""):
        assert read(file, 1) == ""
    assert [read("a.py", number) for number in (-1, 0, 2, 10**9)] == [""] * 4


def test_a_stranger_s_report_reads_nothing_outside_and_no_links_to_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.py").write_text("x = 1\n")
    (outside / "id_rsa").write_text("very secret\n")
    (inside / "key.py").symlink_to(outside / "id_rsa")
    (inside / "link.py").symlink_to(outside / "a.py")
    (inside / "round.py").symlink_to(inside / "round.py")
    read, anywhere = reader(str(inside)), reader(str(inside), anywhere=True)
    for file in ("key.py", "link.py", "round.py", str(outside / "a.py"), "../out/a.py"):
        assert read(file, 1) == ""
    assert anywhere(str(outside / "a.py"), 1) == anywhere("link.py", 1) == "x = 1"
    assert anywhere("key.py", 1) == anywhere("round.py", 1) == ""


def test_a_quoted_line_keeps_no_secret(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("login(token='hunter2', retry=3)\ntoken = next(tokens)\n")
    read = reader(str(tmp_path))
    assert read("a.py", 1) == "login(token='<redacted>', retry=3)"
    assert read("a.py", 2) == "token = next(tokens)"
