"""The lists of files by hand find what they name, wherever files have moved to."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import mutants
from tests import changed


@pytest.mark.parametrize("name", mutants.ROOMS)
def test_each_pattern_of_a_room_finds_files_and_tests_that_import_the_room(name: str) -> None:
    room = mutants.ROOMS[name]
    assert [glob for glob in room.files if not any((mutants.SRC / "gobrrr").glob(glob))] == []
    assert [glob for glob in room.tests if not any((mutants.ROOT / "tests").glob(glob))] == []
    assert mutants.tests_of(name)[1]


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("src/gobrrr/a/b.py", "from gobrrr.a.b import c", True),
        ("src/gobrrr/a/b.py", "from gobrrr.a import b", True),
        ("src/gobrrr/a/b.py", "from gobrrr.a import (\n    a,\n    b,\n)", True),
        ("src/gobrrr/a/b.py", "from gobrrr.a.bc import b", False),
        ("src/gobrrr/a/b.py", "from gobrrr.a import (\n    bc,\n)\nb = 1", False),
        ("src/gobrrr/a/__init__.py", "import gobrrr.a", True),
        ("tests/support/b.py", "from tests.support import b", True),
        ("docs/b.md", "import gobrrr.a", False),
    ],
)
def test_a_changed_file_asks_for_the_tests_that_import_it(file: str, text: str, found: bool, tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(text)
    assert changed.tests_of([Path(file)], [test]) == [test] * found
