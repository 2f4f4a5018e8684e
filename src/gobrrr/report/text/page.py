"""The page that a text is laid out on: its width, its alphabet, the gutter of labels, and how a block looks on it.

In colours and as wide as the terminal where there is one, the same content plain elsewhere.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

import msgspec
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from gobrrr.report.told.bars import ASCII, bar
from gobrrr.report.told.blocks import Block, Groups, Line, Sentence, Table
from gobrrr.rules.verdict.place import Source, no_source
from gobrrr.system.escape import plain

GUTTER = 10
"""Columns of the labels: the longest is 'roofline'."""
WIDTH = 100
"""Columns where there is no terminal, and the most that is used of a wider one: longer lines read slower."""
MIN_WIDTH = 40  # columns at least, however narrow the terminal; proposed: rows still fit; settled by trying 30
BAR = 24  # columns of a whole bar in a row; proposed: 4 % of it is one column; settled on 80 columns


class Page(msgspec.Struct, frozen=True):
    """How to lay out. Everything that comes from a program passes `clean` or `clip` before it is shown."""

    width: int = WIDTH
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
        return safe.translate(ASCII).encode("ascii", "backslashreplace").decode("ascii") if self.ascii_only else safe

    def clip(self, text: str, cells: int, front: bool = False) -> str:
        """At most `cells` columns of harmless text; '...' or one ellipsis where it was cut, at its end or `front`."""
        safe, dots = self.clean(text), "..." if self.ascii_only else "…"
        if cell_len(safe) <= cells:
            return safe
        while safe and cell_len(safe) + cell_len(dots) > cells:
            over = max(1, len(safe) - cells)
            safe = safe[over:] if front else safe[:-over]
        return "" if cells < cell_len(dots) else dots + safe if front else safe + dots

    def line(self, line: Line) -> Text:
        """A line, harmless; never read as markup. What is CUT is cut where the page ends."""
        parts: list[str | tuple[str, str]] = []
        for part in (line,) if isinstance(line, str) else line:
            words, style = (part, "") if isinstance(part, str) else part
            cut = style.endswith("cut")
            parts.append((self.clip(words, self.body) if cut else self.clean(words), style.removesuffix("cut").strip()))
        return Text.assemble(*parts)

    def row(self, label: str, *body: Line | Text) -> Grid:
        """A label in the gutter and lines beside it, wrapped under themselves."""
        return self.indented(Text(label, style="bold"), body, GUTTER)

    def under(self, *body: Line | Text, indent: int = 4) -> Grid:
        """Lines below a heading, wrapped under themselves."""
        return self.indented(Text(""), body, indent)

    def indented(self, label: Text, body: Sequence[Line | Text], indent: int) -> Grid:
        """Two columns without borders: `indent` columns for the label, the rest for the lines."""
        grid = Grid.grid(padding=0)
        grid.add_column(width=indent, no_wrap=True, overflow="crop")
        grid.add_column(width=self.width - indent, overflow="fold")
        grid.add_row(label, Text("\n").join(each if isinstance(each, Text) else self.line(each) for each in body))
        return grid

    def block(self, block: Block) -> list[RenderableType]:
        """A block as it looks here: a label that begins with a capital (no letter alone) stands above its lines."""
        if isinstance(block, Sentence):
            return [self.line(line) for line in block.lines]
        if isinstance(block, Table):
            return [self._lines(block.narrow())] if block.label else self._columns(block.narrow())
        if len(block.label) == 1 or not block.label[:1].isupper():
            return [self.row(block.label, *block.lines)]
        items = [self.indented(Text(" -"), [line], GUTTER - 6) for line in block.lines]
        return [Text(f"\n{block.label}", style="bold"), *items]

    def _lines(self, table: Table) -> RenderableType:
        """Rows beside a label, their cells in columns but the last, which is long."""
        rows = [[self.clean(cell.text if cell.share is None else f"{bar(cell.share, BAR):<{BAR}}") for cell in row]
                for row in table.rows]  # fmt: skip
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
        lines: list[Line | Text] = [table.lead] if table.lead else []
        for row, cells in zip(rows, table.rows, strict=True):
            padded = [
                f"{words:>{width}}" if cell.value is not None else f"{words:<{width}}"
                for words, cell, width in zip(row, cells, widths, strict=False)
            ]
            parts = [part for words, cell in zip(padded, cells, strict=False) for part in ((words, cell.style), "  ")]
            lines.append(Text.assemble(*parts, row[-1]))
        return self.row(table.label, *lines)

    def _columns(self, table: Table) -> list[RenderableType]:
        """Rows under heads: figures are whole, names are cut where there is no room; a title indents them."""
        titled = bool(table.title) and not table.folded
        grid = Grid(
            box=None, padding=(0, 3, 0, 2) if titled else (0, 2, 0, 0), header_style="bold" if titled else "dim"
        )
        for head, figures in table.heads:
            grid.add_column(head, justify="right" if figures else "left", no_wrap=figures)
        for row in table.rows:
            grid.add_row(*(Text(self.clean(cell.text), no_wrap=True, overflow="ellipsis") for cell in row))
        return [*([Text(f"\n{self.clean(table.title)}", style="bold")] if titled else []), grid]


def rendered(groups: Groups, *, width: int = WIDTH, color: bool = False, ascii_only: bool = False) -> str:
    """Blocks as text that ends with a newline; pure."""
    page = Page(max(width, MIN_WIDTH), ascii_only)
    return laid_out([[part for block in group for part in page.block(block)] for group in groups], page.width, color)


def show(groups: Groups, stream: TextIO, mask: Callable[[str], str] = str) -> None:
    """Write blocks to a stream as suits it; `mask` masks what --redact finds in them."""
    width, color, ascii_only = suited(stream)
    stream.write(mask(rendered(groups, width=width, color=color, ascii_only=ascii_only)))


def suited(stream: TextIO) -> tuple[int, bool, bool]:
    """Return what a stream can show: columns to use, whether it takes colours, whether ASCII alone."""
    terminal = stream.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    ascii_only = "utf" not in (getattr(stream, "encoding", None) or "utf-8").lower()
    if terminal:
        return min(WIDTH, size(stream)[0]), color, ascii_only
    said = os.environ.get("COLUMNS", "")  # as other programs take it
    return int(said) if said.isdecimal() and 0 < int(said) < 10_000 else WIDTH, color, ascii_only


def size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows; some terminals do not say, or say zero."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return columns or 80, rows or 24


def laid_out(blocks: Iterable[Iterable[RenderableType]], width: int, color: bool) -> str:
    """Blocks with a blank line between them, as text that ends with a newline; empty ones are left out."""
    console = Console(  # rich without anything of its own: no markup, no highlighting, no look at the environment
        file=io.StringIO(), width=width, height=1000, force_terminal=color, force_jupyter=False, no_color=not color,
        color_system="standard" if color else None, markup=False, highlight=False, emoji=False, legacy_windows=False,
        soft_wrap=False, _environ={},
    )  # fmt: skip
    spaced = [[*block, Text("")] for block in map(list, blocks) if block]
    with console.capture() as capture:
        console.print(Group(*(part for block in spaced for part in block)))
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").split("\n")) + "\n"
