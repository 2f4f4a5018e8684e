"""A text, or a program's files, with edits made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gobrrr.remedies.edits.catalogue import SourceEdit
from gobrrr.remedies.edits.forms import Edit
from gobrrr.remedies.edits.program import edited, read
from gobrrr.remedies.edits.source import Source
from gobrrr.rules.model.finding import Finding


def patched(text: str, edits: Iterable[Edit], lines: Sequence[int] = ()) -> str:
    return edited(Source(text), edits, lines)


def files_after(edit: SourceEdit, files: Sequence[Path], source: Path, *findings: Finding) -> dict[str, str]:
    """The files that it changes, by their path relative to `source`; none where its place is not found."""
    offer = edit.offer(read(files), source, findings)
    return {name: data.decode() for name, data in offer.files.items()} if offer is not None else {}
