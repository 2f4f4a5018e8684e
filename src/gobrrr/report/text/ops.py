"""Ops in a terminal: the costliest in the report, and all of the profiled steps as one table, sorted by any column."""

from __future__ import annotations

from typing import TextIO

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.ledger.model.op_tables import OpRow, OpTable
from gobrrr.report.forms.formats import SORTS
from gobrrr.report.text.page import MIN_WIDTH, WIDTH, Page, laid_out, suited
from gobrrr.report.told.ops import NAMED, all_rows, because, cells, heads, name_of, on_all, title
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import Device, OpShare, Report
from gobrrr.units import several

NAME = 26  # columns of an op's name at most; proposed: leaves room for its place; settled by names cut alike
FIRST = 3
"""Ops in the report as it is by default; all ten under --ops and -v."""
NUM_OPS, NUM_SHAPES, OP_WIDTH, SHAPE_WIDTH = 4, 8, 28, 24
LEAST = 24
"""Columns that a name needs beside its figures: else they stand below it."""


def ops(report: Report, page: Page, num: int = FIRST) -> list[RenderableType]:
    """One line per op: its share of the step, its name, the rate it reached, where it is called."""
    if report.device and report.device.work:
        return launched(report.device, page, num, num > FIRST)
    if not report.ops:
        return []
    most = report.ops[:num]
    column = min(NAME, max(len(page.clean(_name(op))) for op in most))
    return [page.row("ops", *(_line(op, column, page) for op in most))]


def _line(op: OpShare, column: int, page: Page) -> Text:
    name = page.clip(_name(op), column)
    rate = ""  # FLOP/s where arithmetic is its floor, bytes per second where memory is
    if op.bound == "compute" and op.flops_per_s:
        rate = units.flop_rate(op.flops_per_s)
    elif op.bound and op.bytes_per_s:
        rate = units.byte_rate(op.bytes_per_s)
    figures = f"{units.share(op.share):>6} {units.duration(op.ns):>8}  {name:<{column}} {rate:>13}"
    place = f"  {op.phase} of {short(op.where)}" if op.where else f"  {op.phase}"
    return Text.assemble(figures, (page.clip(place, page.body - len(figures)), "cyan"))


def _name(op: OpShare) -> str:
    name = op.name.removeprefix("aten::")
    return f"{name} x{op.calls:.0f}" if op.calls >= 1.5 else name


def launched(device: Device, page: Page, num: int = NUM_OPS, shapes: bool = True) -> list[RenderableType]:
    """The ops whose kernels take most, with how near each comes to its ceiling; `shapes`: and again by the shapes of
    products, convolutions and attention."""
    most = device.work[:num]
    names = [f"{page.clip(op.name.removeprefix('aten::'), OP_WIDTH)} {op.dtype}" for op in most]
    longest = max(map(len, names))
    lines = [f"{name:<{longest}}  {_reached(op)}" for name, op in zip(names, most, strict=True)]
    return [page.row("ops", *lines), *(_by_shape(device, page) if shapes and device.by_shape else [])]


def _by_shape(device: Device, page: Page) -> list[RenderableType]:
    most = device.by_shape[:NUM_SHAPES]
    names = [page.clip(f"{op.name.removeprefix('aten::')} {op.dtype}", OP_WIDTH) for op in most]
    figures = [f"x{op.calls:<4.3g} {units.duration(op.ns):>7}  {_of_peak(op)}" for op in most]
    width = max(map(len, names))
    room = page.body - width - max(map(len, figures)) - 4
    beside, room = ("  ", room) if room >= SHAPE_WIDTH else ("\n  ", page.body - 2)
    lines = [Text(f"{name:<{width}}  {numbers}{beside}{page.clip(op.shapes, room)}")
             for name, numbers, op in zip(names, figures, most, strict=True)]  # fmt: skip
    return [page.row("by shape", (("calls, time and rate per step, share of the peak", "dim"),), *lines)]


def _of_peak(op: DeviceOp) -> str:
    """Rate and share, in columns."""
    return f"{_rate(op):>12} {units.share(op.reached):>7}" if op.believed else f"{'at peak':>12} {'':>7}"


def _reached(op: DeviceOp) -> str:
    if not op.believed:
        return f"{units.duration(op.ns):>7}  {'':>13}  at peak {op.bound}, or its work is counted too high"
    return f"{units.duration(op.ns):>7}  {_rate(op):>13}, {units.share(op.reached)} of peak {op.bound}"


def _rate(op: DeviceOp) -> str:
    return units.flop_rate(op.rate) if op.bound == "compute" else units.byte_rate(op.rate)


def show(report: Report, stream: TextIO | None, by: str, sort: str | None, num: int) -> str:
    """One table as it suits a stream; `sort`: one of SORTS. Raises GobrrrError for what this table lacks."""
    if by == "line" and sort in ("average", "calls"):
        raise GobrrrError(f"lines cannot be sorted by {sort}: how often each runs is not counted", "use --sort total")
    width, color, ascii_only = suited(stream) if stream else (WIDTH, False, False)
    page = Page(max(MIN_WIDTH, width), ascii_only)
    table = next((table for table in report.tables if table.by == by), None)
    return laid_out([[Text(line) for line in _lines(table, report, page, sort, num)]], page.width, color)


def _lines(table: OpTable | None, report: Report, page: Page, sort: str | None, num: int) -> list[str]:
    if table is None:
        return ["no table of ops: no step was profiled, or this report is of an older version"]
    if table.why:
        return [f"no ops by {table.by}: {because(table, report)}"]
    rows, key = list(table.rows), sort or ("device" if table.on_device else "self")
    rows.sort(key=lambda row: name_of(row) if key == "name" else "")
    if key != "name":
        rows.sort(key=lambda row: -(getattr(row, SORTS[key]) or 0.0))
    left = len(rows[num:]) + table.num_others
    names = [_labelled(table, row) for row in rows[:num]]
    num_own = 2 if table.by in NAMED else 1
    figures = [[cell.text.removesuffix("FLOP/s") for cell in cells(table, row)[num_own:]] for row in rows[:num]]
    head = list(heads(table)[num_own:])
    widths = [max(cell_len(line[i]) for line in (head, *figures)) for i in range(len(head))]
    gap = next((gap for gap in ("  ", " ") if page.width - sum(widths) - len(gap) * len(widths) >= LEAST), "")
    room = page.width
    if gap:
        room = min(room - sum(widths) - len(gap) * len(widths), max(map(cell_len, names), default=0))
    steps = f" ({several('step', report.step.profiled_count)})" if report.step.profiled_count else ""
    told = [f"{title(table)}{steps}, by {key}", "", *_placed([table.by], [head], widths, room, gap)]
    names = [page.clip(name, room, front=table.by in ("line", "module")) for name in names]
    told += _placed(names, figures, widths, room, gap)
    rest = f"{left} more, see --ops N and --format json; " if left else ""
    device = f", {units.duration(on_all(table))} of the device" if table.on_device else ""
    own = sum(row.self_ns for row in all_rows(table))
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
