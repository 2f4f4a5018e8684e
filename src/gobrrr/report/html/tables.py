"""The page's tables: what was measured, ops with the roofline above them, memory by role, and what was not judged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gobrrr import units
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.ledger.model.op_tables import OpTable
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part, Point
from gobrrr.report.text import op_tables
from gobrrr.report.text.resources import CONVENTION, MEMORY, saver
from gobrrr.report.text.sections import SLOW_STEPS, UNTIMED, pace_of, serving, several, watching
from gobrrr.report.told.money import sentences
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import OpShare, Report
from gobrrr.system.escape import cleaned_command

ROLES = tuple(role for role in MEMORY if role != "peak")


class Cell(NamedTuple):
    """A cell: its text, and the figure that it is sorted by where it is one."""

    text: str
    value: float | None = None


class Table(NamedTuple):
    """A table that can be sorted: heads with whether the column holds figures, and rows."""

    title: str
    heads: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False
    """Shown when it is asked for."""


def facts(report: Report) -> list[tuple[str, list[str]]]:
    """Return what was measured, how surely, and what watching cost: (label, lines)."""
    step = report.step
    interval = f" (95 %: {units.interval(step.low_ns, step.high_ns)})" if step.low_ns else ""
    usual = "mean" if step.averaged else "median"
    count = f"{usual} of {step.plain_count} {step.kind} steps" if step.plain_count != 1 else f"one {step.kind} step"
    several_warm = f"{step.warmup_count} warm-up step{'' if step.warmup_count == 1 else 's'}"
    warm = f", {several_warm} dropped" if step.warmup_count else ""
    lines = [f"{units.duration(step.plain_wall_ns)}, {count}{interval}{warm}"]
    if step.unmarked:
        lines = [f"{units.duration(step.plain_wall_ns)}: all of the file, which does not say where a step ends"]
    if not step.plain_wall_ns:
        lines = [UNTIMED.format(step.count, step.kind)]
    lines += [told] if (told := pace_of(report)) else []
    lines += [serving(each) for each in report.serving]
    lines += [f"a step is {', '.join(several(*part) for part in step.holds)}"] if step.holds else []
    if step.outlier_ns > SLOW_STEPS * step.plain_wall_ns:
        lines.append(f"rare slow steps add {units.duration(step.outlier_ns)} to each step on average")
    found = [("step", lines), ("watching", [watching(report)])]
    found += [("money", sentences(report.money))] if report.money else []
    if report.device:
        busy, span = units.share(report.device.busy_share), units.share(report.device.span.busy_share)
        found.append(("device", [f"{report.device.name}: busy {busy} of the step, {span} from first to last event"]))
        kinds = [f"{kind} {units.share(share)}" for kind, share in report.device.classes if share >= 0.005]
        found += [("kernels", [", ".join(kinds)])] if kinds else []
    if report.loops:
        found.append(("also seen", [f"{o.name}: {units.share(o.share)}, {o.count} steps" for o in report.loops]))
    if report.exit_code:
        found.append(("exit", [f"{report.exit_code} from {cleaned_command(report.command) or 'the program'}"]))
    return found


def about(report: Report) -> list[tuple[str, str]]:
    """Return where and how the recording was made."""
    rank = f"{report.rank} of {report.world_size}" if report.rank is not None and (report.world_size or 0) > 1 else ""
    told = [
        ("program", cleaned_command(report.command)), ("recording", report.recording), ("rank", rank),
        ("machine", report.machine), ("threads", str(report.threads) if report.machine else ""),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(report.versions.items()))),
        ("missing", "; ".join(report.missing)),
    ]  # fmt: skip
    return [(label, words) for label, words in told if words]


def skipped(report: Report) -> list[tuple[str, str]]:
    """Rules that could not judge, by reason: (reason, codes)."""
    by_reason = sorted(report.skipped_rules, key=lambda rule: (rule[1], rule[0]))
    return [
        (reason, ", ".join(code for code, _ in rules)) for reason, rules in groupby(by_reason, key=lambda rule: rule[1])
    ]


def roofline(report: Report) -> dict[str, Any]:
    """The ops under the ceilings, numbered as in the first table, and the step as a whole."""
    roof, wall = report.roofline, report.step.plain_wall_ns
    points = _points(report)
    chart = charts.roofline(points, roof.ceiling_flop_rate or 0.0, roof.ceiling_byte_rate or 0.0)
    lines = []
    if wall and roof.flops:
        of = f" of {units.flop_rate(roof.ceiling_flop_rate)} in {roof.dtype}" if roof.ceiling_flop_rate else ""
        mfu = f": MFU {units.share(roof.mfu)}" if roof.mfu is not None else ""
        lines.append(f"The whole step: {units.flop_rate(1e9 * roof.flops / wall)}{of}{mfu} ({CONVENTION}).")
    if roof.speed_of_light is not None:
        lines.append(
            f"Speed of light, the least that its ops need as a share of it: {units.share(roof.speed_of_light)}."
        )
    if roof.not_counted_share >= 0.0005:
        names = ", ".join(name for name, _ in roof.not_counted)
        lines.append(f"Not counted: {units.share(roof.not_counted_share)} of the step{f' ({names})' if names else ''}.")
    if chart:
        measured = roof.ceiling or "measured on this machine"
        lines.append(
            f"Ceilings ({measured}): {units.flop_rate(roof.ceiling_flop_rate or 0)} and "
            f"{units.byte_rate(roof.ceiling_byte_rate or 0)} of memory. Numbers are those of the table of ops, areas "
            "are shares of the step. What fits into caches may lie above the slope."
        )
    return {"chart": chart, "lines": lines}


def _points(report: Report) -> list[Point]:
    if report.device and report.device.work:
        wall = report.step.plain_wall_ns or 1
        longest = {op.name: op for op in reversed(report.ops)}
        return [
            Point(i, op.flops / op.bytes, 1e9 * op.flops / op.ns, op.ns / wall, _bound(op.bound),
                  f"{i} {op.name} {op.dtype}: {units.duration(op.ns)}, {_reached(op)}{_at(longest.get(op.name))}")
            for i, op in enumerate(report.device.listed, 1) if op.ns > 0 and op.bytes > 0
        ]  # fmt: skip
    return [
        Point(i, op.flops_per_s / op.bytes_per_s, op.flops_per_s, op.share, _bound(op.bound),
              f"{i} {op.name} ({op.phase}): {units.duration(op.ns)}, {units.flop_rate(op.flops_per_s)}{_at(op)}")
        for i, op in enumerate(report.ops, 1) if op.flops_per_s and op.bytes_per_s
    ]  # fmt: skip


def _reached(op: DeviceOp) -> str:
    return units.flop_rate(1e9 * op.flops / op.ns) if op.believed else "at peak"


def _bound(bound: str | None) -> str:
    """A word of a report becomes a class of the style sheet only where it is one of ours."""
    return bound if bound in ("compute", "bandwidth") else "unknown"


def _at(op: OpShare | None) -> str:
    """Its line, and the shapes that take most."""
    line = f", {short(op.where)}" if op and op.where else ""
    return f"{line}, {op.shapes}" if op and op.shapes else line


def ops(report: Report) -> list[Table]:
    """The costliest ops; on a device by op and again by shape. Then all of the profiled steps, each way."""
    return [*_costliest(report), *(_grouped(table) for table in report.tables if table.rows)]


def unknown(report: Report) -> list[str]:
    """Why there are no ops by line or by module."""
    return [f"No ops by {table.by}: {op_tables.because(table, report)}." for table in report.tables if table.why]


def _grouped(table: OpTable) -> Table:
    rows = [*table.rows, *([table.others] if table.others else [])]
    heads = tuple((head, head not in (table.by, "op", "shapes", "class")) for head in op_tables.heads(table))
    cells = tuple(tuple(_cell(*each) for each in op_tables.cells(table, row)) for row in rows)
    return Table(op_tables.title(table), heads, cells, folded=True)


def _cell(words: str, value: float | None) -> Cell:
    return Cell(words, value)


def _costliest(report: Report) -> list[Table]:
    device, wall = report.device, report.step.plain_wall_ns or 1
    if device is None or not device.work:
        return [_host(report.ops)] if report.ops else []
    heads = (("#", True), ("op", False), ("dtype", False), ("calls", True), ("per step", True), ("of step", True),
             ("FLOP/s", True), ("bytes/s", True), ("of peak", True), ("bound", False))  # fmt: skip
    found = []
    for title, listed in (("Ops by the kernels that they launched", device.listed), ("By shape", device.listed_shapes)):
        shaped = title == "By shape"
        rows = tuple(_launched(i, op, wall, shaped) for i, op in enumerate(listed, 1))
        own = (*heads[:3], ("shapes", False), *heads[3:]) if shaped else heads
        found += [Table(title, own, rows)] if rows else []
    return found


def _host(listed: Sequence[OpShare]) -> Table:
    heads = (("#", True), ("op", False), ("phase", False), ("line", False), ("calls", True), ("per step", True),
             ("of step", True), ("FLOP/s", True), ("bytes/s", True), ("bound", False))  # fmt: skip
    rows = tuple(_played(i, op) for i, op in enumerate(listed, 1))
    return Table("Ops that take most of the step (self time)", heads, rows)


def _launched(number: int, op: DeviceOp, wall: float, shaped: bool) -> tuple[Cell, ...]:
    counted = op.ns if op.believed else 0.0
    return (
        _count(number), _name(op.name), Cell(op.dtype), *((Cell(op.shapes),) if shaped else ()), _calls(op.calls),
        _time(op.ns), _share(op.ns / wall), _rate(op.flops, counted), _bytes(op.bytes, counted),
        _share(op.reached if op.ns else 0.0), Cell(op.bound),
    )  # fmt: skip


def _played(number: int, op: OpShare) -> tuple[Cell, ...]:
    return (
        _count(number), _name(op.name), Cell(op.phase), Cell(short(op.where) if op.where else ""), _calls(op.calls),
        _time(op.ns), _share(op.share), _rate(op.flops_per_s, 1e9), _bytes(op.bytes_per_s, 1e9), Cell(op.bound or ""),
    )  # fmt: skip


def _name(op: str) -> Cell:
    return Cell(op.removeprefix("aten::"))


def _count(number: int) -> Cell:
    return Cell(str(number), number)


def _calls(calls: float) -> Cell:
    return Cell(f"{calls:.3g}", calls)


def _time(ns: float) -> Cell:
    return Cell(units.duration(ns), ns)


def _share(share: float) -> Cell:
    return Cell(units.share(share), share)


def _rate(flops: float | None, ns: float) -> Cell:
    return Cell(units.flop_rate(1e9 * flops / ns), 1e9 * flops / ns) if flops and ns else Cell("", 0.0)


def _bytes(moved: float | None, ns: float) -> Cell:
    return Cell(units.byte_rate(1e9 * moved / ns), 1e9 * moved / ns) if moved and ns else Cell("", 0.0)


def memory(report: Report) -> dict[str, Any]:
    """The peak by role, what was alive then, which activations are kept, and growth."""
    if report.device and report.device.memory:
        return _device_memory(report)
    book = report.memory
    sizes = [(role, getattr(book, role)) for role in ROLES]
    known = [(role.replace("_", " "), size) for role, size in sizes if size]
    parts = [Part(name, size, f"phase{i % 7}", f"{name}: {units.size(size)}") for i, (name, size) in enumerate(known)]
    whole = book.peak or sum(size for _, size in known) or 1
    rows = [(charts.swatch(part.kind), part.name, units.size(part.value), units.share(part.value / whole))
            for part in parts]  # fmt: skip
    lines = []
    if book.bytes_per_parameter is not None:
        lines.append(f"{book.bytes_per_parameter:.1f} bytes per parameter (mixed-precision Adam: 16 to 18).")
    if book.growth_per_step is not None:
        grows = book.growth_per_step >= 1
        lines.append(
            f"Grows {units.size(book.growth_per_step)} per step." if grows else "Does not grow from step to step."
        )
    if book.alive_at_peak:
        alive = ", ".join(f"{name} {units.size(size)}" for name, size in book.alive_at_peak)
        lines.append(f"Alive at the peak: {alive}.")
    heads = (("kept for backward by", False), ("op", False), ("tensors", True), ("size", True))
    kept = tuple((Cell(saver(s)), Cell(s.op), Cell(str(s.count), s.count), Cell(units.size(s.num_bytes), s.num_bytes))
                 for s in report.saved)  # fmt: skip
    return {
        "peak": units.size(book.peak) if book.peak is not None else "",
        "chart": charts.stack(parts, "The peak of memory by role"), "rows": rows, "lines": lines,
        "saved": Table("Largest activations kept for backward", heads, kept) if kept else None,
    }  # fmt: skip


def _device_memory(report: Report) -> dict[str, Any]:
    assert report.device is not None and report.device.memory is not None
    book = report.device.memory
    lines = []
    if book.reserved is not None:
        lines.append(f"The allocator held {units.size(book.reserved)} for it.")
    if book.capacity:
        lines.append(f"The device has {units.size(book.capacity)}.")
    if book.since_start:
        lines.append("It is counted above what was there when the recording began.")
    if book.op:
        lines.append(f"Reached in {book.op}{f' at {short(book.where[0])}' if book.where else ''}.")
    if book.driver_calls >= 1:
        lines.append(f"{book.driver_calls:.0f} calls to the driver per step: the allocator finds no room.")
    if book.growth_per_step:
        lines.append(f"Grows {units.size(book.growth_per_step)} per step.")
    return {"peak": units.size(book.peak), "chart": "", "rows": [], "lines": lines, "saved": None}
