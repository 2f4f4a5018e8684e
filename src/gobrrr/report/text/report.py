"""The terminal report: in colours and as wide as the terminal where there is one, the same content plain elsewhere."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from gobrrr.report.text import costliest, findings, resources, sections, time_table
from gobrrr.report.text.brief import LINES, layouts
from gobrrr.report.text.page import Page
from gobrrr.rules.verdict.place import Source, no_source, reader
from gobrrr.rules.verdict.report import Report

WIDTH = 100
"""Columns where there is no terminal, and the most that is used of a wider one: longer lines read slower."""
MIN_WIDTH = 40  # columns at least, however narrow the terminal; proposed: rows still fit; settled by trying 30


def show(
    report: Report, stream: TextIO, root: str | None = None, anywhere: bool = False, *, verbose: bool = False,
    ops: bool = False, mask: Callable[[str], str] = str,
) -> None:  # fmt: skip
    """Write the report to `stream` as suits it: at most 30 lines, or all of it where `verbose`. Source lines and
    relative paths start at `root` (working directory); of a program that has just run, lines may come from `anywhere`.
    `mask` masks what --redact finds in them.
    """
    root = str(root or os.getcwd())  # noqa: PTH109 - a string is wanted
    width, color, ascii_only = suited(stream)
    rows = _size(stream)[1] if stream.isatty() else 0
    source = reader(root, anywhere, mask)
    how = {"width": width, "color": color, "ascii_only": ascii_only, "root": root, "source": source}
    stream.write(render(report, rows=rows, **how) if verbose else brief(report, ops=ops, **how))  # type: ignore[arg-type]


def suited(stream: TextIO) -> tuple[int, bool, bool]:
    """Return what a stream can show: columns to use, whether it takes colours, whether ASCII alone."""
    terminal = stream.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    ascii_only = "utf" not in (getattr(stream, "encoding", None) or "utf-8").lower()
    return min(WIDTH, _size(stream)[0]) if terminal else _columns(), color, ascii_only


def _columns() -> int:
    """Return the width that COLUMNS sets where there is no terminal, as other programs take it."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and 0 < int(said) < 10_000 else WIDTH


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows; some terminals do not say, or say zero."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return columns or 80, rows or 24


def render(
    report: Report,
    *,
    width: int = WIDTH,
    rows: int = 0,
    color: bool = False,
    ascii_only: bool = False,
    root: str = "",
    source: Source = no_source,
) -> str:
    """The report as text that ends with a newline. Pure but for `source`, which reads the lines that are quoted.

    On a terminal of `rows` rows that the report would scroll out of, the verdict is said again at the end.
    """
    page = Page(max(width, MIN_WIDTH), ascii_only, root, source)
    text = laid_out(_blocks(report, page), page.width, color)
    if 0 < rows <= text.count("\n"):
        text += "\n" + laid_out([sections.verdict(report, page)], page.width, color)
    return text


def brief(
    report: Report,
    *,
    width: int = WIDTH,
    color: bool = False,
    ascii_only: bool = False,
    root: str = "",
    source: Source = no_source,
    ops: bool = False,
) -> str:
    """The report in at most 30 lines; `ops`: with its ten costliest ops, which come on top of that. As pure as
    render()."""
    page = Page(max(width, MIN_WIDTH), ascii_only, root, source)
    num = len(report.ops) if ops else costliest.FIRST
    text = ""
    for blocks in layouts(report, page, num):
        text = laid_out(blocks, page.width, color)
        if text.count("\n") <= LINES + num - costliest.FIRST:
            break
    return text


def laid_out(blocks: Iterable[Iterable[RenderableType]], width: int, color: bool) -> str:
    """Blocks with a blank line between them, as text that ends with a newline; empty ones are left out."""
    console = _console(width, color)
    spaced = [[*block, Text("")] for block in map(list, blocks) if block]
    with console.capture() as capture:
        console.print(Group(*(part for block in spaced for part in block)))
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").split("\n")) + "\n"


def _console(width: int, color: bool) -> Console:
    """Rich without anything of its own: no markup, no highlighting, no look at the environment."""
    return Console(
        file=io.StringIO(), width=width, height=1000, force_terminal=color, force_jupyter=False, no_color=not color,
        color_system="standard" if color else None, markup=False, highlight=False, emoji=False, legacy_windows=False,
        soft_wrap=False, _environ={},
    )  # fmt: skip


def _ops(report: Report, page: Page) -> list[RenderableType]:
    """All ten; of a device's kernels the step's own rows tell more."""
    return [] if report.device and report.device.work else costliest.ops(report, page, len(report.ops))


def _blocks(report: Report, page: Page) -> tuple[list[RenderableType], ...]:
    """The report's blocks; the verdict is the first thing that the eye meets."""
    return (
        sections.verdict(report, page),
        sections.step(report, page),
        [*time_table.time(report, page), *_ops(report, page)],
        findings.costs(report, page),
        [*resources.resources(report, page), *sections.limits(report, page)],
        sections.next_steps(report, page),
    )
