"""The page that a text report is laid out on: its width, its alphabet, and the gutter of labels on its left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gobrrr.rules.verdict.place import Source, no_source
from gobrrr.system.escape import plain

GUTTER = 10
"""Columns of the labels: the longest is 'roofline'."""

COLORS = {"critical": "bold red", "warning": "bold yellow", "note": "cyan"}


class Page(msgspec.Struct, frozen=True):
    """How to lay out. Everything that comes from a program passes `clean` or `clip` before it is shown."""

    width: int = 100
    ascii_only: bool = False
    root: str = ""
    source: Source = no_source

    @property
    def body(self) -> int:
        """Columns right of the gutter."""
        return self.width - GUTTER

    def clean(self, text: str) -> str:
        """Harmless text in the page's alphabet."""
        safe = plain(text)
        return safe.encode("ascii", "backslashreplace").decode("ascii") if self.ascii_only else safe

    def clip(self, text: str, cells: int) -> str:
        """Harmless text of at most `cells` columns; '...' or one ellipsis where something was cut."""
        safe, dots = self.clean(text), "..." if self.ascii_only else "…"
        if cell_len(safe) <= cells:
            return safe
        while safe and cell_len(safe) + cell_len(dots) > cells:
            safe = safe[: min(len(safe) - 1, cells)]
        return safe + dots if cells >= cell_len(dots) else ""

    def row(self, label: str, *body: Text) -> Table:
        """A label in the gutter and lines beside it, wrapped under themselves."""
        return self.indented(Text(label, style="bold"), body, GUTTER)

    def under(self, *body: Text, indent: int = 4) -> Table:
        """Lines below a heading, wrapped under themselves."""
        return self.indented(Text(""), body, indent)

    def indented(self, label: Text, body: Sequence[Text], indent: int) -> Table:
        """Two columns without borders: `indent` columns for the label, the rest for the lines."""
        grid = Table.grid(padding=0)
        grid.add_column(width=indent, no_wrap=True, overflow="crop")
        grid.add_column(width=self.width - indent, overflow="fold")
        grid.add_row(label, Text("\n").join(body))
        return grid


def phrase(*parts: str | tuple[str, str]) -> Text:
    """Text of parts, each a string or (string, style); never read as markup."""
    return Text.assemble(*parts)
