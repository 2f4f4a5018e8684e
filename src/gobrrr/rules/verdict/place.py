"""Forms of a place in the source: short in a sentence, as a path that opens in a list, with the line itself."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path, PurePath, PureWindowsPath

from gobrrr.recording.model.facts import Span
from gobrrr.system import files
from gobrrr.system.escape import LIMIT
from gobrrr.system.secrets import masked_text

MAX_SOURCE_BYTES = 4 << 20
"""No source file that people write is larger; keeps a report that names a huge file from reading it."""

CELL = re.compile(r"[/\\]ipykernel_\d+[/\\]\d+\.py$|^<ipython-input-(\d+)-")
"""Files that stand for cells of a notebook (ipykernel, IPython, which numbers them)."""

WINDOWS = re.compile(r"[A-Za-z]:\\|[^/]*\\[^/]*$")
"""A trace of Windows is read anywhere."""

Source = Callable[[str, int], str]


def short(span: Span) -> str:
    """'train.py:41 in main', 'train.py:44 in main.closure'."""
    function = span.function.replace("<locals>.", "")
    return spot(span) + (f" in {function}" if function and function != "<module>" else "")


def spot(span: Span) -> str:
    """'train.py:41': the file's own name, with its folder where the name alone says nothing."""
    path = (PureWindowsPath if WINDOWS.match(span.file) else PurePath)(_file(span.file))
    name = "/".join(path.parts[-2:]) if path.name.startswith("__") else path.name
    return f"{name or span.file}:{span.line}"


def shown(span: Span, root: str) -> str:
    """'src/train.py:41': relative to `root` where the file lies below it."""
    path = PurePath(_file(span.file))
    inside = path.relative_to(root) if root and path.is_relative_to(root) else path
    return f"{inside}:{span.line}"


def _file(file: str) -> str:
    """A cell's file is a number in a temporary folder, which says nothing."""
    cell = CELL.search(file)
    return file if cell is None else f"cell {cell[1]}" if cell[1] else "cell"


def reader(root: str, anywhere: bool = False, mask: Callable[[str], str] = str) -> Source:
    """Reads one line of a Python file, stripped, with secrets masked, and what `mask` masks; '' where it cannot be had.
    Relative paths start at `root`.

    Only plain files whose own name, not that of a link, ends in .py, and only below `root` unless `anywhere`: a report
    may come from a stranger, who hopes to have what it reads out sent back.
    """
    home = Path(root).resolve()

    def line(file: str, number: int) -> str:
        if CELL.search(file):  # its text is where tracebacks have it from, in the notebook's own process
            lines = linecache.cache.get(file, ())[2:3]
            return hidden("".join(lines[0][number - 1 : number]), mask) if lines else ""
        try:
            path = Path(root, file).resolve()
            if number < 1 or not may_read(path, home, anywhere):
                return ""
            with files.opened(path) as source:
                if os.fstat(source.fileno()).st_size > MAX_SOURCE_BYTES:
                    return ""
                found = next(islice(source, number - 1, number), b"").decode("utf-8", "replace")
            return hidden(found, mask)
        except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
            return ""

    return line


def may_read(path: Path, home: Path, anywhere: bool) -> bool:
    """Say whether a resolved path is one that a report may quote."""
    return path.suffix == ".py" and (anywhere or path.is_relative_to(home))


def hidden(line: str, mask: Callable[[str], str]) -> str:
    """A line of source as it may be shown."""
    return mask(masked_text(line.strip()[:LIMIT], code=True))


def no_source(file: str, number: int) -> str:
    """A reader that reads nothing: for output that leaves this machine."""
    return ""
