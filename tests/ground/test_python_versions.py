"""The oldest Python that pyproject.toml promises reads all of src/, and its standard library has what is used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
FILES = sorted((ROOT / "src").rglob("*.py"))


def oldest() -> tuple[int, int]:
    found = re.search(r'^requires-python = ">=(\d+)\.(\d+)"', PROJECT, re.MULTILINE)
    assert found
    return int(found[1]), int(found[2])


def test_all_places_name_the_same_oldest_version() -> None:
    major, minor = oldest()
    assert f'target-version = "py{major}{minor}"' in PROJECT
    listed = re.findall(r"Python :: (\d+)\.(\d+)", PROJECT)
    assert min(tuple(map(int, each)) for each in listed) == (major, minor)
    assert f"for Python {major}.{minor} to" in (ROOT / "constraints.txt").read_text()


def test_the_oldest_grammar_reads_every_file() -> None:
    """Of newer ones ast knows match, except* and type parameters; ruff's target-version knows the f-strings too."""
    assert len(FILES) > 300
    for file in FILES:
        ast.parse(file.read_text(), str(file), feature_version=oldest())


def test_the_oldest_standard_library_has_what_is_used(tmp_path: Path) -> None:
    """Modules, functions and arguments by vermin; what is looked for at run time (tomllib) stands behind a version."""
    pytest.importorskip("vermin", reason="knows since when the standard library has what")
    target = f"-t={'.'.join(map(str, oldest()))}-"
    vermin = [sys.executable, "-c", "from vermin import main; main()"]
    asked = [*vermin, target, "--violations", "--no-tips", "--eval-annotations"]
    newer = tmp_path / "newer.py"
    newer.write_text("import itertools\nitertools.batched('ab', 1)\n")
    said = subprocess.run([*asked, str(newer)], capture_output=True, text=True)
    assert said.returncode == 1 and "itertools.batched" in said.stdout
    found = subprocess.run([*asked, str(ROOT / "src")], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
