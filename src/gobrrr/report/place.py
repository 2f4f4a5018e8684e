"""How a place in the source is written: short in a sentence, as a path that opens in a list, with the line itself."""

from __future__ import annotations

import stat
from collections.abc import Callable
from itertools import islice
from pathlib import Path, PurePath

from gobrrr.recording.facts import Span

MAX_SOURCE_BYTES = 4 << 20
"""No source file that people write is larger; keeps a report that names a huge file from reading it."""

Source = Callable[[str, int], str]


def short(span: Span) -> str:
    """'train.py:41 in main': the file's own name, with its folder where the name alone says nothing."""
    path = PurePath(span.file)
    name = "/".join(path.parts[-2:]) if path.name.startswith("__") else path.name
    inside = f" in {span.function}" if span.function and span.function != "<module>" else ""
    return f"{name or span.file}:{span.line}{inside}"


def shown(span: Span, root: str) -> str:
    """'src/train.py:41 main': relative to `root` where the file lies below it."""
    path = PurePath(span.file)
    inside = path.relative_to(root) if root and path.is_relative_to(root) else path
    return f"{inside}:{span.line}"


def reader(root: str) -> Source:
    """Reads one line of a Python file, stripped; '' where that cannot be had. Relative paths start at `root`.

    Only regular files named *.py: a report may come from a stranger, and must not read out anything else.
    """

    def line(file: str, number: int) -> str:
        try:
            path = Path(root, file)
            facts = path.stat()
            readable = path.suffix == ".py" and stat.S_ISREG(facts.st_mode) and facts.st_size <= MAX_SOURCE_BYTES
            if not readable or number < 1:
                return ""
            with path.open(encoding="utf-8", errors="replace") as lines:
                return next(islice(lines, number - 1, number), "").strip()
        except (OSError, ValueError):
            return ""

    return line


def no_source(file: str, number: int) -> str:
    """A reader that reads nothing: for output that leaves this machine."""
    return ""
