"""A noun as a terminal shows it."""

from __future__ import annotations

from typing import Any

from gobrrr.report.forms import formats
from gobrrr.report.text.page import rendered


def as_text(noun: Any, view: formats.View = formats.PLAIN, **how: Any) -> str:
    """Its blocks as text; `how`: width, color, ascii_only."""
    return rendered(formats.blocks(noun, view), **how)


def as_comment(noun: Any, root: str = "") -> str:
    """The same as Markdown."""
    return formats.render(noun, "markdown", formats.View(root)).decode()
