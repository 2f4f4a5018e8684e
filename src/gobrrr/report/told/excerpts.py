"""The lines of source around a place, as they may be shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gobrrr.recording.model.facts import Span
from gobrrr.rules.verdict.place import CELL, MAX_SOURCE_BYTES, may_read
from gobrrr.system import files
from gobrrr.system.escape import LIMIT, plain
from gobrrr.system.secrets import masked_text

AROUND = 4
"""Lines on either side."""


class Excerpt(NamedTuple):
    """Numbered lines, with the indentation that all share taken away; `doubt` says why there are none, or why they may
    be others than those that ran."""

    lines: tuple[tuple[int, str], ...] = ()
    doubt: str = ""


Excerpts = Callable[[Span], Excerpt]


def excerpts(
    root: str, anywhere: bool = False, mask: Callable[[str], str] = str, recorded_ns: int | None = None
) -> Excerpts:
    """Reads the lines around a place; `mask`, `anywhere` as of place.reader(), `recorded_ns`: when the program ran."""
    home = Path(root).resolve()

    def around(span: Span) -> Excerpt:
        if CELL.search(span.file):
            return Excerpt(doubt="A cell of a notebook: its text is not kept.")
        try:
            path = Path(root, span.file).resolve()
            if not may_read(path, home, anywhere):
                return Excerpt(doubt="Not a Python file below the folder that this page was made in: not read.")
            with files.opened(path) as source:
                facts = os.fstat(source.fileno())
                if facts.st_size > MAX_SOURCE_BYTES:
                    return Excerpt(doubt="The file is too large to be source that people write: not read.")
                text = source.read(MAX_SOURCE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return Excerpt(doubt="The file is not here, or not any more.")
        except (OSError, ValueError, RuntimeError):  # as in place.reader()
            return Excerpt(doubt="The file cannot be read.")
        changed = recorded_ns is not None and facts.st_mtime_ns > recorded_ns
        return _cut(text.splitlines(), span.line, mask, changed)

    return around


def _cut(lines: list[str], line: int, mask: Callable[[str], str], changed: bool) -> Excerpt:
    if not 1 <= line <= len(lines):
        count = f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
        return Excerpt(doubt=f"The file has {count} now: it was changed after the program ran.")
    first = max(1, line - AROUND)
    shown = [masked_text(text.expandtabs(4)[:LIMIT], code=True) for text in lines[first - 1 : line + AROUND]]
    shown = [mask(plain(text)).rstrip() for text in shown]
    while shown and not shown[-1]:
        shown.pop()
    indent = min((len(text) - len(text.lstrip()) for text in shown if text), default=0)
    doubt = "The file was changed after the program ran: these may be other lines." if changed else ""
    return Excerpt(tuple(enumerate((text[indent:] for text in shown), first)), doubt)
