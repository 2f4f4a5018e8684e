"""The page's tables: what was measured, ops with the roofline above them, memory by role, and what was not judged."""

from __future__ import annotations

from typing import Any

from gobrrr import units
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part, Point
from gobrrr.report.told import report as told
from gobrrr.report.told import resources
from gobrrr.report.told.blocks import Cell, Fact, Table, plainly
from gobrrr.report.told.ops import because
from gobrrr.report.told.resources import loops, saver
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import OpShare, Report
from gobrrr.system.escape import cleaned_command

SHOWN = 0.0005  # share of the step that is not 0.0 % when it is printed
ROLES = ("parameters", "gradients", "optimizer_state", "activations", "inputs", "runtime", "workspace")


def facts(report: Report) -> list[Fact]:
    """What was measured, how surely, and what watching cost."""
    return [told.step(report), *told.program(report), *loops(report)]


def about(report: Report) -> list[tuple[str, str]]:
    """Return where and how the recording was made."""
    rank = f"{report.rank} of {report.world_size}" if report.rank is not None and (report.world_size or 0) > 1 else ""
    said = [
        ("program", cleaned_command(report.command)), ("recording", report.recording), ("rank", rank),
        ("machine", report.machine), ("threads", str(report.threads) if report.machine else ""),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(report.versions.items()))),
        ("missing", "; ".join(report.missing)),
    ]  # fmt: skip
    return [(label, words) for label, words in said if words]


def roofline(report: Report) -> dict[str, Any]:
    """The ops under the ceilings, numbered as in the first table, and the step as a whole."""
    roof = report.roofline
    chart = charts.roofline(_points(report), roof.ceiling_flop_rate or 0.0, roof.ceiling_byte_rate or 0.0)
    lines = [*map(plainly, resources.roofline(report))]
    if not lines and roof.not_counted_share >= SHOWN:
        lines = [f"not counted: {resources.hole(roof)}"]
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


def unknown(report: Report) -> list[str]:
    """Why there are no ops by line or by module."""
    return [f"No ops by {table.by}: {because(table, report)}." for table in report.tables if table.why]


def memory(report: Report) -> dict[str, Any]:
    """The peak by role, what was alive then, which activations are kept, and growth."""
    if report.device and report.device.memory:
        lines = [*map(plainly, resources.device_memory(report.device.memory))]
        return {"peak": "", "chart": "", "rows": [], "lines": lines, "saved": None}
    book = report.memory
    sizes = [(role, getattr(book, role)) for role in ROLES]
    known = [(role.replace("_", " "), size) for role, size in sizes if size]
    parts = [Part(name, size, f"phase{i % 7}", f"{name}: {units.size(size)}") for i, (name, size) in enumerate(known)]
    whole = book.peak or sum(size for _, size in known) or 1
    rows = [(charts.swatch(part.kind), part.name, units.size(part.value), units.share(part.value / whole))
            for part in parts]  # fmt: skip
    lines = [*map(plainly, resources.memory_notes(report))]
    if book.growth_per_step is not None and book.growth_per_step < 1:
        lines.append("does not grow from step to step")
    heads = (("kept for backward by", False), ("op", False), ("tensors", True), ("size", True))
    kept = tuple((Cell(saver(s)), Cell(s.op), Cell(str(s.count), s.count), Cell(units.size(s.num_bytes), s.num_bytes))
                 for s in report.saved)  # fmt: skip
    return {
        "peak": units.size(book.peak) if book.peak is not None else "",
        "chart": charts.stack(parts, "The peak of memory by role"), "rows": rows,
        "lines": lines,
        "saved": Table("Largest activations kept for backward", heads, kept) if kept else None,
    }  # fmt: skip
