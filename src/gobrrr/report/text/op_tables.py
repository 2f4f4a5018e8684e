"""All ops of the profiled steps as one table: by op, shape, line or module, sorted by any of its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.ledger.model.op_tables import OpRow, OpTable
from gobrrr.report.text.page import Page
from gobrrr.report.text.report import MIN_WIDTH, WIDTH, laid_out, suited
from gobrrr.report.text.sections import several
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import Report

LEAST = 24
"""Columns that a name needs beside its figures: else they stand below it."""
KEYS: dict[str, Callable[[OpRow], float]] = {
    "self": lambda row: row.self_ns, "total": lambda row: row.total_ns, "average": lambda row: row.average_ns or 0.0,
    "calls": lambda row: row.calls or 0.0, "device": lambda row: row.device_ns or 0.0,
    "rate": lambda row: row.flops_per_s or 0.0, "peak": lambda row: row.of_peak or 0.0,
}  # fmt: skip
ON_DEVICE = ("device", "its total")
HINTS = {
    "line": ("a debugger or coverage traced it", "record it with with_stack=True"),
    "module": (
        "a debugger or coverage traced it, or none was called",
        "record it with with_stack=True, which names modules that are not compiled",
    ),
}  # fmt: skip
"""Why they are unknown, of a run and of a file."""


def show(report: Report, stream: TextIO | None, by: str, sort: str | None, num: int) -> str:
    """One table as it suits a stream, as text that ends with a newline; `sort`: one of SORTS. Raises GobrrrError for
    what this table lacks."""
    if by == "line" and sort in ("average", "calls"):
        raise GobrrrError(f"a line has no {sort}: nobody counts how often it runs", "--sort total")
    width, color, ascii_only = suited(stream) if stream else (WIDTH, False, False)
    page = Page(max(MIN_WIDTH, width), ascii_only)
    table = next((table for table in report.tables if table.by == by), None)
    return laid_out([[Text(line) for line in _lines(table, report, page, sort, num)]], page.width, color)


def because(table: OpTable, report: Report) -> str:
    """Why a table has no rows, in words."""
    live, file = HINTS.get(table.by, ("", ""))
    return f"{table.why} ({file if report.offline else live})" if live else table.why


def title(table: OpTable) -> str:
    """'All ops by module, per profiled step'."""
    return f"All ops by {table.by}, per profiled step"


def heads(table: OpTable) -> tuple[str, ...]:
    """Return the heads of the columns, in the order of cells()."""
    own = {"shape": ("op", "shapes"), "module": ("module", "class")}.get(table.by, (table.by,))
    called = ("ops",) if table.by == "line" else ("average", "calls")
    return (*own, "self", *(ON_DEVICE if table.on_device else ()), "of all", "total", *called, "FLOP/s", "of peak")


def cells(table: OpTable, row: OpRow) -> list[tuple[str, float | None]]:
    """(text, figure that it is sorted by) of each column."""
    whole = _whole(table)
    name: list[tuple[str, float | None]] = [(name_of(row), None)]
    name += [(row.detail, None)] if table.by in ("shape", "module") else []
    device = [_time(row.device_ns), _time(row.device_total_ns)] if table.on_device else []
    own = (row.device_ns or 0.0) if table.on_device else row.self_ns
    rate = (units.flop_rate(row.flops_per_s) if row.flops_per_s else "", row.flops_per_s or 0.0)
    peak = (units.share(row.of_peak) if row.of_peak else "", row.of_peak or 0.0)
    share = own / whole if whole else 0.0
    return [
        *name,
        _time(row.self_ns),
        *device,
        (units.share(share) if share else "", share),
        _time(row.total_ns),
        *([_number(row.ops)] if table.by == "line" else [_time(row.average_ns), _number(row.calls)]),
        rate,
        peak,
    ]


def name_of(row: OpRow) -> str:
    """Short, as people know it."""
    if row.where is not None:
        return short(row.where)
    return row.name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")


def _time(ns: float | None) -> tuple[str, float]:
    return units.duration(ns) if ns else "", ns or 0.0


def _number(count: float | None) -> tuple[str, float]:
    return (f"{count:,.0f}" if count >= 100 else f"{count:.3g}") if count else "", count or 0.0


def _whole(table: OpTable) -> float:
    rows = [*table.rows, *([table.others] if table.others else [])]
    return sum((row.device_ns or 0.0) if table.on_device else row.self_ns for row in rows)


def _lines(table: OpTable | None, report: Report, page: Page, sort: str | None, num: int) -> list[str]:
    if table is None:
        return ["no table of ops: no step was profiled, or this report is of an older version"]
    if table.why:
        return [f"no ops by {table.by}: {because(table, report)}"]
    rows, key = list(table.rows), sort or ("device" if table.on_device else "self")
    rows.sort(key=lambda row: name_of(row) if key == "name" else "")
    if key != "name":
        rows.sort(key=lambda row: -KEYS[key](row))
    left = len(rows[num:]) + table.num_others
    names = [_labelled(table, row) for row in rows[:num]]
    num_own = 2 if table.by in ("shape", "module") else 1
    figures = [[text.removesuffix("FLOP/s") for text, _ in cells(table, row)[num_own:]] for row in rows[:num]]
    head = list(heads(table)[num_own:])
    widths = [max(cell_len(line[i]) for line in (head, *figures)) for i in range(len(head))]
    gap = next((gap for gap in ("  ", " ") if page.width - sum(widths) - len(gap) * len(widths) >= LEAST), "")
    room = (
        min(page.width - sum(widths) - len(gap) * len(widths), max(map(cell_len, names), default=0))
        if gap
        else page.width
    )
    steps = f" ({several('step', report.step.profiled_count)})" if report.step.profiled_count else ""
    told = [f"{title(table)}{steps}, by {key}", "", *_placed([table.by], [head], widths, room, gap)]
    cut = _ended if table.by in ("line", "module") else Page.clip
    told += _placed([cut(page, name, room) for name in names], figures, widths, room, gap)
    rest = f"{left} more, see --ops N and --format json; " if left else ""
    device = f", {units.duration(_whole(table))} of the device" if table.on_device else ""
    own = sum(row.self_ns for row in [*table.rows, *([table.others] if table.others else [])])
    return [*told, "", f"{rest}all ops: {units.duration(own)} on the host{device}"]


def _placed(names: list[str], rows: list[list[str]], widths: list[int], room: int, gap: str) -> list[str]:
    """Names with their figures beside them, below them where they have no room."""
    found = []
    for name, row in zip(names, rows, strict=True):
        figures = [f"{words:>{width}}" for words, width in zip(row, widths, strict=True)]
        beside = gap.join([name + " " * (room - cell_len(name)), *figures])
        found += [beside] if gap else [name, "  " + " ".join(figures)]
    return found


def _labelled(table: OpTable, row: OpRow) -> str:
    name = name_of(row)
    if not row.detail:
        return name
    return f"{name} ({row.detail})" if table.by == "module" else f"{name} {row.detail}"


def _ended(page: Page, words: str, cells: int) -> str:
    """Cut at its front: of a path the end tells modules apart."""
    safe, dots = page.clean(words), "..." if page.ascii_only else "…"
    if cell_len(safe) <= cells:
        return safe
    while safe and cell_len(safe) + cell_len(dots) > cells:
        safe = safe[max(1, len(safe) - cells) :]
    return dots + safe
