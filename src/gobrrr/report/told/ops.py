"""Ops as tables: the costliest, and all of the profiled steps by op, shape, line or module."""

from __future__ import annotations

from collections.abc import Callable

from gobrrr import units
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.ledger.model.op_tables import OpRow, OpTable
from gobrrr.report.told.blocks import Cell, Table, time_cell
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import OpShare, Report

ON_DEVICE = ("device", "its total")
HINTS = {
    "line": ("a debugger or coverage traced it", "record it with with_stack=True"),
    "module": (
        "a debugger or coverage traced it, or none was called",
        "record it with with_stack=True, which names modules that are not compiled",
    ),
}  # fmt: skip
"""Why they are unknown, of a run and of a file."""
NAMED = ("shape", "module")
"""Tables whose rows have a second name."""


def costliest(report: Report) -> list[Table]:
    """The costliest ops; on a device by op and again by shape."""
    device, wall = report.device, report.step.plain_wall_ns or 1
    figures = (("calls", True), ("per step", True), ("of step", True), ("FLOP/s", True), ("bytes/s", True))
    if device is None or not device.work:
        heads = (("#", True), ("op", False), ("phase", False), ("line", False), *figures, ("bound", False))
        rows = tuple(_on_host(at, op) for at, op in enumerate(report.ops, 1))
        title = "Ops that take most of the step (self time)"
        return [Table(title, heads, rows, folded=True, on_page=("#",))] if rows else []
    found = []
    for title, listed in (("Ops by the kernels that they launched", device.listed), ("By shape", device.listed_shapes)):
        shapes = (("shapes", False),) if title == "By shape" else ()
        heads = (("#", True), ("op", False), ("dtype", False), *shapes, *figures, ("of peak", True), ("bound", False))
        rows = tuple(_launched(at, op, wall, bool(shapes)) for at, op in enumerate(listed, 1))
        found += [Table(title, heads, rows, folded=True, on_page=("#",))] if rows else []
    return found


def _launched(number: int, op: DeviceOp, wall: float, shaped: bool) -> tuple[Cell, ...]:
    counted = op.ns if op.believed else 0.0
    return (
        Cell(str(number), number), _name(op.name), Cell(op.dtype), *((Cell(op.shapes),) if shaped else ()),
        *_figures(op.calls, op.ns, op.ns / wall), *_rates(op.flops, op.bytes, counted),
        _share(op.reached if op.ns else 0.0), Cell(op.bound),
    )  # fmt: skip


def _on_host(number: int, op: OpShare) -> tuple[Cell, ...]:
    return (
        Cell(str(number), number), _name(op.name), Cell(op.phase), Cell(short(op.where) if op.where else ""),
        *_figures(op.calls, op.ns, op.share), *_rates(op.flops_per_s, op.bytes_per_s, 1e9), Cell(op.bound or ""),
    )  # fmt: skip


def _name(op: str) -> Cell:
    return Cell(op.removeprefix("aten::"))


def _figures(calls: float, ns: float, share: float) -> tuple[Cell, ...]:
    return Cell(units.calls(calls), calls), time_cell(ns), _share(share)


def _share(share: float) -> Cell:
    return Cell(units.share(share), share)


def _rates(flops: float | None, moved: float | None, ns: float) -> tuple[Cell, ...]:
    """FLOPs and bytes per second, from those counted in `ns`."""
    known = ((units.flop_rate, flops), (units.byte_rate, moved))
    return tuple(_known(say, 1e9 * work / ns if work and ns else None) for say, work in known)


def grouped(report: Report) -> list[Table]:
    """All ops of the profiled steps, each way of summing them."""
    found = []
    for table in (table for table in report.tables if table.rows):
        shown = tuple((head, head not in (table.by, "op", "shapes", "class")) for head in heads(table))
        found.append(Table(title(table), shown, tuple(cells(table, row) for row in all_rows(table)), folded=True))
    return found


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


def cells(table: OpTable, row: OpRow) -> tuple[Cell, ...]:
    """The cell of each column."""
    whole, own = on_all(table), (row.device_ns or 0.0) if table.on_device else row.self_ns
    share = own / whole if whole else 0.0
    calls = _known(units.calls, row.ops if table.by == "line" else row.calls)
    called = (calls,) if table.by == "line" else (_known(units.duration, row.average_ns), calls)
    return (
        Cell(name_of(row)), *((Cell(row.detail),) if table.by in NAMED else ()), _known(units.duration, row.self_ns),
        *(_known(units.duration, ns) for ns in (row.device_ns, row.device_total_ns) if table.on_device),
        _known(units.share, share), _known(units.duration, row.total_ns), *called,
        _known(units.flop_rate, row.flops_per_s), _known(units.share, row.of_peak),
    )  # fmt: skip


def name_of(row: OpRow) -> str:
    """Short, as people know it."""
    if row.where is not None:
        return short(row.where)
    return row.name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")


def all_rows(table: OpTable) -> list[OpRow]:
    """Rows of a table with that of all others."""
    return [*table.rows, *([table.others] if table.others else [])]


def on_all(table: OpTable) -> float:
    """Return the ns that all rows take together, on the device where one works."""
    return sum((row.device_ns or 0.0) if table.on_device else row.self_ns for row in all_rows(table))


def _known(say: Callable[[float], str], figure: float | None) -> Cell:
    """A figure; empty where it is not known, or nothing."""
    return Cell(say(figure) if figure else "", figure or 0.0)
