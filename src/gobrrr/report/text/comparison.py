"""Two recordings side by side, as text."""

from __future__ import annotations

from typing import TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.ledger.compare.comparison import Comparison, OpRatio, Side
from gobrrr.ledger.ops.op_times import OpTime
from gobrrr.report.text.page import Page
from gobrrr.report.text.report import laid_out, suited
from gobrrr.report.text.sections import pace


def show_comparison(found: Comparison, stream: TextIO, num_ops: int) -> None:
    """Write it to a stream as suits that."""
    width, color, ascii_only = suited(stream)
    stream.write(render(found, num_ops=num_ops, width=width, color=color, ascii_only=ascii_only))


def render(
    found: Comparison, *, num_ops: int = 12, width: int = 100, color: bool = False, ascii_only: bool = False
) -> str:
    """The verdict, both steps with their accounts, the findings that differ, and the ops that differ most."""
    page = Page(width, ascii_only)
    sides: list[RenderableType] = [
        page.row(label, Text(page.clean(line(side))), Text(page.clean(side.verdict), style="dim"))
        for label, side in (("A", found.a), ("B", found.b))
    ]
    codes: list[RenderableType] = [
        page.row(label, Text(page.clean(", ".join(only))))
        for label, only in (("only A", found.vanished), ("only B", found.appeared))
        if only
    ]
    ops: list[RenderableType] = [_ops(found, page, num_ops)] if found.ops and num_ops else []
    verdict = Text(page.clean(found.verdict), style="bold")
    return laid_out(([verdict], sides, [_accounts(found), *codes], ops), width, color)


def line(side: Side) -> str:
    """How long its step takes, from how many, and how busy its device is."""
    busy = f", {side.device} busy {units.share(side.busy_ns / side.step_ns)}" if side.busy_ns and side.step_ns else ""
    cost = f", which costs {units.money(side.step_cost)}" if side.step_cost is not None else ""
    rates = pace(side.p95_ns, side.p99_ns, side.samples_per_s, side.tokens_per_s)
    usual = "mean" if side.averaged else "median"
    told = f"{units.duration(side.step_ns)} per step, {usual} of {side.num_steps}{cost}{busy}"
    return f"{told}{f', {rates}' if rates else ''}: {side.source}"


def _accounts(found: Comparison) -> Table:
    table = _table("account", "A", "B", "B - A")
    for name, ours, theirs in accounts(found):
        table.add_row(name.replace("_", " "), units.duration(ours), units.duration(theirs), signed(theirs - ours))
    return table


def accounts(found: Comparison) -> list[tuple[str, float, float]]:
    """(account, ns of A, ns of B), the largest first; those with nothing on either side are left out."""
    a, b = dict(found.a.accounts), dict(found.b.accounts)
    rows = [(name, a.get(name, 0.0), b.get(name, 0.0)) for name in dict.fromkeys((*a, *b))]
    return sorted((row for row in rows if max(row[1:]) > 0), key=lambda row: (-max(row[1:]), row[0]))


def _ops(found: Comparison, page: Page, num_ops: int) -> Table:
    table = _table("op", "calls", "A host", "A device", "B host", "B device", "a call")
    for op in found.ops[:num_ops]:
        ratio = "" if op.ratio is None else f"{op.ratio:.2f}x"
        table.add_row(
            page.clip(f"{named(op)} {op.shapes}", max(20, page.width - 68)),
            _calls(op),
            *_times(op.a),
            *_times(op.b),
            ratio,
        )
    return table


def named(op: OpRatio) -> str:
    """Its name, or those of both sides."""
    return op.name if op.by is None else " | ".join(name.removeprefix("aten::") for name in op.by)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for head in others:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _calls(op: OpRatio) -> str:
    shown = [f"{side.calls:.3g}" if side else "-" for side in (op.a, op.b)]
    return shown[0] if shown[0] == shown[1] else "/".join(shown)


def _times(side: OpTime | None) -> tuple[str, str]:
    if side is None:
        return "-", "-"
    return units.duration(side.host_ns), units.duration(side.device_ns) if side.device_ns else "-"


def signed(ns: float) -> str:
    """'+1.20 ms'."""
    return f"{'+' if ns >= 0 else '-'}{units.duration(abs(ns))}"
