"""Whatever Python takes for a script is one: from a pipe, from stdin, bytecode, an archive."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAMS, Runner

TELLS = PROGRAMS / "tells.py"


@pytest.mark.parametrize("line", ["{} /dev/stdin a b", "{} - a b", "{} <(cat) a b", "{} /dev/fd/5 a b 5<&0"])
def test_a_script_from_a_pipe_is_not_eaten(line: str, gobrrr: Runner, tmp_path: Path) -> None:
    source = b"import sys; print(sys.argv, __name__); sys.exit(6)"
    found = []
    for start in ([sys.executable], [*gobrrr.command, "run"]):
        command = ["bash", "-c", "exec 4<&0; " + line.format('"$@"').replace("(cat)", "(cat <&4)"), "bash", *start]
        done = subprocess.run(command, env=gobrrr.env, cwd=tmp_path, input=source, capture_output=True, timeout=60)
        found.append((done.returncode, done.stdout))
    assert found[0][0] == 6
    assert b"__main__" in found[0][1]
    assert found[1] == found[0]


def made(kind: str, folder: Path) -> Path:
    """tells.py in another form."""
    (folder / "app").mkdir()
    main = folder / "app" / "__main__.py"
    main.write_text(TELLS.read_text())
    target = folder / kind
    if kind.startswith("archive"):
        zipapp.create_archive(folder / "app", target, interpreter="/usr/bin/env python3" if "line" in kind else None)
        return target
    if kind == "folder":
        py_compile.compile(str(main), str(folder / "app" / "__main__.pyc"))
        main.unlink()
        return folder / "app"
    py_compile.compile(str(TELLS), str(target))
    return target


@pytest.mark.parametrize("kind", ["archive", "archive with a first line", "bytecode.pyc", "bytecode", "folder"])
def test_what_python_runs_without_source_runs(kind: str, plainly: Runner, gobrrr: Runner, tmp_path: Path) -> None:
    script = made(kind, tmp_path)
    plain = plainly(script, "x", input=b"")
    watched = gobrrr("run", script, "x", input=b"")
    assert plain.code == 0, plain.text
    assert (watched.code, watched.out) == (plain.code, plain.out)
    assert "never imported torch" in watched.text


def test_a_warning_about_the_source_comes_once(plainly: Runner, gobrrr: Runner, tmp_path: Path) -> None:
    (tmp_path / "warned.py").write_text("print(1 is 1, '\\d')\n")
    environ = {"PYTHONWARNINGS": "default", "PYTHONDONTWRITEBYTECODE": "1"}
    plain, watched = plainly("warned.py", environ=environ), gobrrr("run", "warned.py", environ=environ)
    assert plain.text.count("Warning") == watched.text.count("Warning") == 2
