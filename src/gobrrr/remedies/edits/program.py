"""The program's files as edits see them: which there are, what they become, and the diff of that."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gobrrr.remedies.edits.forms import Edit
from gobrrr.remedies.edits.source import Source, compiles

MOST_FILES = 200
"""Files of a program that are read (proposed: how many modules of their own large projects import would settle it)."""


def files_of(command: Sequence[str], folder: Path) -> list[Path]:
    """The script of a command line, a launcher's too, or its module, and what it imports from beside it or from the
    folder, transitively; all inside the folder."""
    scripts = [n for n, word in enumerate(command) if n and word.endswith(".py") and (folder / word).is_file()]
    before = list(command[: scripts[0] if scripts else -1])  # what follows a script is its own
    named = before.index("-m") + 1 if "-m" in before else 0
    module = command[named].replace(".", "/") if named else ""
    words = [f"{module}.py", f"{module}/__main__.py"] if module else []
    if not any((folder / word).is_file() for word in words):  # a launcher's module has the script behind it
        words = [command[n] for n in scripts[:1]]
    found: dict[Path, None] = {}
    waiting = [(folder / word).resolve() for word in words if word.endswith(".py") and (folder / word).is_file()]
    roots = [folder.resolve(), *(script.parent for script in waiting)]
    while waiting and len(found) < MOST_FILES:
        file = waiting.pop(0)
        if file not in found and file.is_relative_to(roots[0]):
            found[file] = None
            waiting += [path.resolve() for path in _imported(file, roots) if path.is_file()]
    return list(found)


def _imported(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Where modules that a file imports may be."""
    source = _source(file)
    if source is None:
        return
    names = [(roots, alias.name) for node in source.nodes(ast.Import) for alias in node.names]
    for node in source.nodes(ast.ImportFrom):
        above = [file.parents[node.level - 1]] if 0 < node.level <= len(file.parents) else roots
        inside = f"{node.module}." if node.module else ""
        names += [(above, inside.rstrip(".")), *((above, f"{inside}{alias.name}") for alias in node.names)]
    for places, name in names:
        for place in places:
            yield from (place / f"{name.replace('.', '/')}.py", place / name.replace(".", "/") / "__init__.py")


def read(files: Iterable[Path]) -> list[Source]:
    """The files that are Python which can be read; the others are left alone."""
    tried = [_source(file) for file in dict.fromkeys(file.resolve() for file in files)]
    found = [source for source in tried if source is not None]
    for source in found:
        source.program = found
    return found


def _source(file: Path) -> Source | None:
    try:
        return Source(file.read_bytes().decode(), file)  # line ends as they are
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError):
        return None


def edited(source: Source, edits: Iterable[Edit], lines: Sequence[int] = ()) -> str:
    """The text with edits made, but for those after which it would not compile."""
    found = [edit(source, lines) for edit in edits]
    sound = [changes for changes in found if compiles(source.with_changes(changes))]
    after = source.with_changes(change for changes in sound for change in changes)
    return after if compiles(after) else source.text


def at(edit: Edit, where: Collection[tuple[Path, int]]) -> Edit:
    """The edit, at the lines of files that findings point to."""
    return lambda source, _: edit(source, [line for file, line in where if file == source.file])


def texts(sources: Iterable[Source], edits: Sequence[Edit], root: Path) -> dict[str, tuple[str, str]]:
    """Before and after of all files that change, by their path relative to `root`."""
    found: dict[str, tuple[str, str]] = {}
    for source in sources:
        with contextlib.suppress(RecursionError):
            after = edited(source, edits)
            inside = source.file.is_relative_to(root.resolve())
            name = source.file.relative_to(root.resolve()).as_posix() if inside else str(source.file)
            if after != source.text and name.isprintable():
                found[name] = source.text, after
    return found


def diff(changed: Mapping[str, tuple[str, str]]) -> str:
    """A unified diff of texts, before and after; empty where none changes."""
    parts: list[str] = []
    for name, (before, after) in changed.items():
        tab = "\t" if " " in name else ""  # the name would end at the blank, for patch(1)
        parts += difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{tab}", f"b/{name}{tab}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in parts)


def _lines(text: str) -> list[str]:
    """Cut a text into lines as tools that apply patches do: str.splitlines would cut at a form feed as well."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
