"""The costliest ops in the text report: how much of the step each takes, how fast it runs, and from which line."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.report.text.page import Page, phrase
from gobrrr.report.text.sections import shapes, work
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import OpShare, Report

NAME = 26  # columns of an op's name at most; proposed: leaves room for its place; settled by names cut alike
FIRST = 3
"""Ops in the report as it is by default; all ten under --ops and -v."""


def ops(report: Report, page: Page, num: int = FIRST) -> list[RenderableType]:
    """One line per op: its share of the step, its name, the rate it reached, where it is called."""
    if report.device and report.device.work:
        by_shape = shapes(report.device, page) if num > FIRST else []
        return [page.row("ops", *work(report.device, page, num)), *by_shape]
    if not report.ops:
        return []
    most = report.ops[:num]
    column = min(NAME, max(len(page.clean(_name(op))) for op in most))
    return [page.row("ops", *(_line(op, column, page) for op in most))]


def _line(op: OpShare, column: int, page: Page) -> Text:
    name = page.clip(_name(op), column)
    figures = f"{units.share(op.share):>6} {units.duration(op.ns):>8}  {name:<{column}} {_rate(op):>13}"
    place = f"  {op.phase} of {short(op.where)}" if op.where else f"  {op.phase}"
    return phrase(figures, (page.clip(place, page.body - len(figures)), "cyan"))


def _name(op: OpShare) -> str:
    name = op.name.removeprefix("aten::")
    return f"{name} x{op.calls:.0f}" if op.calls >= 1.5 else name


def _rate(op: OpShare) -> str:
    """FLOP/s where arithmetic is its floor, bytes per second where memory is."""
    if op.bound == "compute" and op.flops_per_s:
        return units.flop_rate(op.flops_per_s)
    return units.byte_rate(op.bytes_per_s) if op.bound and op.bytes_per_s else ""
