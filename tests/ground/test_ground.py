"""The ground: what the package promises before it does anything, and the laws that hold between its rooms."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gobrrr

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "gobrrr").rglob("*.py"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
# What a room may import of the house, in the order of docs/architecture.md.
MAY_IMPORT = {
    name: set(filter(None, allowed.split(", ")))
    for name, allowed in re.findall(r"^\| (?!room )(\w+) \| [^|]* \| ?([\w, ]*?) ?\|$", ARCHITECTURE, re.M)
}
NO_TORCH = {"errors", "units", "recording", "ledger", "rules", "report", "cli", "__init__", "__main__"}


def room(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "gobrrr").parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: the house imports by full name"
            names = [f"gobrrr.{alias.name}" for alias in node.names] if node.module == "gobrrr" else [node.module or ""]
            yield from ((node.lineno, name) for name in names)


def modules_after(statement: str) -> set[str]:
    """The modules that are loaded once a fresh interpreter has run `statement`."""
    program = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


HEAVY = {"torch", "numpy", "rich", "jinja2", "msgspec", "psutil", "importlib.metadata"}


def test_importing_gobrrr_loads_nothing_heavy() -> None:
    assert not modules_after("import gobrrr") & HEAVY


def test_help_loads_no_verb_and_nothing_heavy() -> None:
    loaded = modules_after("from gobrrr.cli.main import main; main(['--help'])")
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("gobrrr.cli.")} == {
        "gobrrr.cli.main",
        "gobrrr.cli.streams",
    }


@pytest.mark.parametrize("verb", ["run", "tune", "verify", "remedies", "report", "explain", "machine"])
def test_the_help_of_a_verb_loads_no_torch(verb: str) -> None:
    statement = f"from gobrrr.cli.main import main\ntry: main(['{verb}', '--help'])\nexcept SystemExit: pass"
    assert not modules_after(statement) & {"torch", "rich", "jinja2"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_rooms_import_only_what_lies_below_them(path: Path) -> None:
    here = room(path)
    for line, module in imports(path):
        head = module.split(".")
        if head[0] == "gobrrr" and len(head) > 1 and here in MAY_IMPORT and head[1] != "__version__":
            assert head[1] in MAY_IMPORT[here] | {here}, f"{path}:{line}: {here} imports {head[1]}, which is above it"
        assert head[0] != "gobrrr_lab", f"{path}:{line}: the lab is a leaf: nothing of gobrrr imports it"
        assert head[0] != "torch" or here not in NO_TORCH, f"{path}:{line}: {here} imports torch"


def test_every_room_has_a_row_and_no_two_stand_in_a_circle() -> None:
    """docs/architecture.md: rows are in an order in which each room imports only what was named before it."""
    assert set(MAY_IMPORT) == {room(path) for path in SOURCES} - {"__init__", "__main__"}
    above: set[str] = set()
    for name, allowed in MAY_IMPORT.items():
        assert allowed <= above, f"{name} may import {allowed - above}, which come after it"
        above.add(name)


def test_every_folder_has_a_row_with_its_question_and_at_most_16_files() -> None:
    rows = dict(re.findall(r"^\| (\w+/[\w/]+) \| ([^|]*) \|$", ARCHITECTURE, re.M))
    source = ROOT / "src" / "gobrrr"
    inits = {str(path.parent.relative_to(source)): path for path in source.rglob("__init__.py")}
    said = {
        name: (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        for name, path in inits.items()
        if "/" in name
    }
    assert rows == said
    crowded = {name for name, path in inits.items() if len(list(path.parent.glob("*.py"))) - 1 > 16}
    assert crowded == set()


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(gobrrr[\w.]*:[\w.]+)`", ARCHITECTURE))))
def test_the_way_of_one_number_is_there(named: str) -> None:
    module, _, attribute = named.partition(":")
    found: object = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_public_names_are_found_on_first_use_and_unknown_ones_are_not() -> None:
    assert set(gobrrr.__all__) <= set(dir(gobrrr))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gobrrr.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(set(gobrrr.__all__) - {"__version__"}))
def test_each_public_name_exists(name: str) -> None:
    assert callable(getattr(gobrrr, name))


def test_the_version_is_one() -> None:
    assert importlib.metadata.version("gobrrr") == gobrrr.__version__
    assert f"## {gobrrr.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def requirements(extra: str | None) -> set[str]:
    marker = f'extra == "{extra}"' if extra else None
    found = set()
    for requirement in importlib.metadata.requires("gobrrr") or []:
        name, _, condition = requirement.replace("'", '"').partition(";")
        if condition.strip() == (marker or ""):
            found.add(re.split(r"[<>=~! ]", name)[0].lower())
    return found


def test_torch_is_an_extra_and_the_base_is_six_packages() -> None:
    assert requirements(None) == {"numpy", "msgspec", "rich", "jinja2", "psutil", "shtab"}
    assert requirements("torch") == {"torch"}


def test_constraints_pin_everything_that_the_project_asks_for() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[\w.-]+==[\w.]+(; python_version (<|>=) "3\.\d+")?', line) for line in lines), lines
    pinned = {line.split("==")[0].lower() for line in lines}
    assert requirements(None) | requirements("dev") | {"torch"} <= pinned


def test_make_lists_the_targets_that_the_readme_names() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  make ([\w-]+)", done.stdout, re.MULTILINE))
    assert {"demo", "test", "test-full", "check", "bench", "gpu", "help"} <= listed
    named = {
        name
        for document in ("README.md", "CONTRIBUTING.md")
        for name in re.findall(r"(?:`|    )make ([\w-]+)", (ROOT / document).read_text())
    }
    assert named and named <= listed


def test_continuous_integration_runs_the_checks_and_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert "set -euo pipefail" in lines and lines[-1] == "make test"
    assert lines.index("make check &") < lines.index("wait $!")  # whose exit code is that of the checks


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} links to {target}"


@pytest.mark.slow
def test_the_wheel_holds_pages_templates_and_the_typing_mark(tmp_path: Path) -> None:
    import zipfile

    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src"
    kept = [path for path in (package / "gobrrr").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(package)) for path in kept} <= held
    assert any(name.endswith("LICENSE") for name in held)
