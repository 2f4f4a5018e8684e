"""A program starts as it would alone: arguments, path, main module, working directory, environment, stdin."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAMS, Runner

TELLS = PROGRAMS / "tells.py"
FORMS = {
    "a script": [TELLS, "--steps", "3", "-o", "x", "--", "-m"],
    "a module": ["-m", "tells", "-h", "--json"],
    "a package": ["-m", "package", "x"],
    "a folder": [PROGRAMS.parent / "programs", "x"],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_program_starts_as_it_would_alone(form: str, plainly: Runner, gobrrr: Runner, tmp_path: Path) -> None:
    words = FORMS[form]
    if form == "a folder":
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "__main__.py").write_text(TELLS.read_text())
        words = ["app", "x"]
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(TELLS.read_text())
    path = {"PYTHONPATH": str(PROGRAMS), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    plain = plainly(*words, environ=path, input=b"from stdin")
    watched = gobrrr("run", *words, environ=path, input=b"from stdin")
    assert b"from stdin" in plain.out
    assert (watched.code, watched.out) == (plain.code, plain.out)
    assert watched.text.count("\n") == 1, watched.text
    assert "never imported torch" in watched.text


def test_any_command_that_starts_python(plainly: Runner, gobrrr: Runner) -> None:
    plain = plainly("-X", "utf8", TELLS, "x", input=b"")
    watched = gobrrr("run", "--", sys.executable, "-X", "utf8", TELLS, "x", input=b"")
    assert (watched.code, watched.out) == (plain.code, plain.out)


@pytest.mark.parametrize("pythonpath", [None, "", "a:b", ":"])
def test_the_python_path_is_given_back(pythonpath: str | None, plainly: Runner, gobrrr: Runner) -> None:
    path = {} if pythonpath is None else {"PYTHONPATH": pythonpath}
    plain = plainly(TELLS, environ=path, input=b"")
    assert gobrrr("run", TELLS, environ=path, input=b"").out == plain.out


def test_the_environments_own_sitecustomize_runs(plainly: Runner, gobrrr: Runner, tmp_path: Path) -> None:
    """One that works, one that fails, and one that wants a module which is not there."""
    for number, text in enumerate(("print('site')", "raise ValueError('mine')", "import no_such_module")):
        folder = tmp_path / f"site{number}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(text)
        path = {"PYTHONPATH": str(folder)}
        plain = plainly(TELLS, environ=path, input=b"")
        watched = gobrrr("run", "--", sys.executable, TELLS, environ=path, input=b"")
        assert watched.out.count(b"site\n") == 2 * plain.out.count(b"site\n")  # gobrrr itself is a Python too
        assert watched.out.endswith(plain.out)
        assert plain.err in watched.err
