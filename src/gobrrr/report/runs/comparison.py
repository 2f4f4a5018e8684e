"""Two recordings side by side as blocks: the verdict, both steps with their accounts, and the ops that differ most."""

from __future__ import annotations

from gobrrr import units
from gobrrr.ledger.comparison import Comparison, OpRatio, Side
from gobrrr.report.forms.formats import View
from gobrrr.report.told.blocks import Block, Cell, Groups, Sentence, Table, facts, time_cell
from gobrrr.report.told.report import pace


def blocks(found: Comparison, view: View) -> Groups:
    """All of it, with view.num_ops ops."""
    sides: list[Block] = [*facts((label, (line(side), (side.verdict and ((side.verdict, "dim"),))))
                                 for label, side in (("A", found.a), ("B", found.b)))]  # fmt: skip
    codes = facts(
        (f"only {label}", [", ".join(only)]) for label, only in (("A", found.vanished), ("B", found.appeared))
    )
    rows = tuple((Cell(name.replace("_", " ")), *map(time_cell, (a, b)), Cell(signed(b - a), b - a))
                 for name, a, b in accounts(found))  # fmt: skip
    heads = (("account", False), ("A", True), ("B", True), ("B - A", True))
    listed: list[Block] = [Table("", heads, rows)] if rows else []
    table = ops(found, view.num_ops)
    told: list[Block] = [*facts([("ops", [timed(found)])]), table] if table else []
    return [[Sentence((((found.verdict, "bold"),),))], sides, [*listed, *codes], told]


def timed(found: Comparison) -> str:
    """By whom ops were timed, where the profiler's steps are others than those that are compared."""
    if not any(side.profiled_ns and side.profiled_ns != side.step_ns for side in (found.a, found.b)):
        return ""
    a, b = (units.duration(side.profiled_ns) for side in (found.a, found.b))
    return f"times are the profiler's, whose steps took {a} (A) and {b} (B)"


def line(side: Side) -> str:
    """How long its step takes, from how many, and how busy its device is."""
    busy = f", {side.device} busy {units.share(side.busy_ns / side.step_ns)}" if side.busy_ns and side.step_ns else ""
    cost = f", which costs {units.money(side.step_cost)}" if side.step_cost is not None else ""
    rates = pace(side.p95_ns, side.p99_ns, side.samples_per_s, side.tokens_per_s)
    usual = "mean" if side.averaged else "median"
    told = f"{units.duration(side.step_ns)} per step, {usual} of {side.num_steps}{cost}{busy}"
    return f"{told}{f', {rates}' if rates else ''}: {side.source}"


def accounts(found: Comparison) -> list[tuple[str, float, float]]:
    """(account, ns of A, ns of B), the largest first; those with nothing on either side are left out."""
    a, b = dict(found.a.accounts), dict(found.b.accounts)
    rows = [(name, a.get(name, 0.0), b.get(name, 0.0)) for name in dict.fromkeys((*a, *b))]
    return sorted((row for row in rows if max(row[1:]) > 0), key=lambda row: (-max(row[1:]), row[0]))


def ops(found: Comparison, most: int) -> Table | None:
    """The ops that differ most."""
    heads = (("op", False), ("shapes", False), ("calls", True), ("A host", True), ("A device", True), ("B host", True),
             ("B device", True), ("B - A", True), ("A/B", True))  # fmt: skip
    rows = tuple(_op(op) for op in found.ops[:most])
    return Table("Ops that differ most, per profiled step", heads, rows, folded=True) if rows else None


def _op(op: OpRatio) -> tuple[Cell, ...]:
    times = [time_cell(ns or None) for side in (op.a, op.b)
             for ns in ((side.host_ns, side.device_ns) if side else (None, None))]  # fmt: skip
    return (
        Cell(named(op)), Cell(op.shapes, code=True), Cell(calls(op), op.a.calls if op.a else 0.0), *times,
        Cell(signed(op.delta), op.delta), Cell("" if op.ratio is None else f"{op.ratio:.2f}x", op.ratio or 0.0),
    )  # fmt: skip


def named(op: OpRatio) -> str:
    """Its name, or those of both sides."""
    return " | ".join(name.removeprefix("aten::") for name in op.by or (op.name,))


def calls(op: OpRatio) -> str:
    """'2', or of each side: '2 → 0'."""
    a, b = (units.calls(side.calls) if side else "0" for side in (op.a, op.b))
    return a if a == b else f"{a} → {b}"


def signed(ns: float) -> str:
    """'+1.20 ms'."""
    return f"{'+' if ns >= 0 else '-'}{units.duration(abs(ns))}"
