"""Blocks: what a noun says before a form is chosen. Their texts are raw; the form that shows them escapes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gobrrr import units

Words: TypeAlias = "str | tuple[str, str]"
"""Words, or words with the style that a terminal shows them in; CUT where they have one line at most there."""
Line: TypeAlias = "str | tuple[Words, ...]"
CUT = "dim cut"


class Sentence(NamedTuple):
    """A conclusion, in a line or a few."""

    lines: tuple[Line, ...]


class Fact(NamedTuple):
    """A label, and lines about it."""

    label: str
    lines: Sequence[Line]


class Cell(NamedTuple):
    """A cell: its text, and the figure that it is sorted by where it is one."""

    text: str
    value: float | None = None
    style: str = ""
    share: float | None = None
    """Drawn as a bar in a terminal, of BAR columns where it is 1."""
    code: bool = False
    """A place or a shape, which is quoted in a comment."""


class Table(NamedTuple):
    """A table: heads with whether the column holds figures, and rows. A column without a head is drawn or left out."""

    title: str
    heads: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False
    """Shown when it is asked for, where a form can fold."""
    label: str = ""
    """Label of its lines in a terminal, which shows no heads then."""
    lead: Line = ""
    """Line above its rows there."""
    on_page: tuple[str, ...] = ()
    """Heads of columns for which a page alone has room."""

    def narrow(self) -> Table:
        """Without the columns for which a page alone has room."""
        kept = [at for at, (head, _) in enumerate(self.heads) if head not in self.on_page]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return self._replace(heads=tuple(self.heads[at] for at in kept), rows=rows)


def time_cell(ns: float | None) -> Cell:
    """A time; empty where there is none."""
    return Cell(units.duration(ns), ns) if ns is not None else Cell("", 0.0)


Block: TypeAlias = "Sentence | Fact | Table"
Groups: TypeAlias = "Sequence[Sequence[Block]]"
"""Blocks in groups, between which a terminal leaves a line free."""


def facts(told: Iterable[tuple[str, Sequence[Line]]]) -> list[Fact]:
    """Facts of (label, lines), without empty lines and facts without any."""
    found = (Fact(label, [line for line in lines if line]) for label, lines in told)
    return [fact for fact in found if fact.lines]


def plainly(line: Line) -> str:
    """A line without its styles."""
    return line if isinstance(line, str) else "".join(part if isinstance(part, str) else part[0] for part in line)


def clipped(text: str, most: int) -> str:
    """The text with at most so many characters, the last an ellipsis where some were cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
