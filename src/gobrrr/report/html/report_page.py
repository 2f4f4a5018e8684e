"""The page of a report: what was measured, where the time goes and when, the roofline above the ops, memory by role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gobrrr import units
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.formats import View
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part, Point
from gobrrr.report.html.findings_page import findings
from gobrrr.report.html.gauges_chart import gauges_chart
from gobrrr.report.html.timeline_chart import memory_chart, timeline_chart
from gobrrr.report.timeline.slices import Said, Slice
from gobrrr.report.timeline.timeline import CAUSES, KINDS, Lane, StepTime, Timeline
from gobrrr.report.told import ops, resources
from gobrrr.report.told import report as told
from gobrrr.report.told.bars import tenths
from gobrrr.report.told.blocks import Cell, Fact, Table, facts, plainly
from gobrrr.report.told.resources import ACCOUNTS, gloss, loops, saver
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import OpShare, Report
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.system.escape import cleaned_command

SHOWN = 0.0005  # share of the step that is not 0.0 % when it is printed
ROLES = ("parameters", "gradients", "optimizer_state", "activations", "inputs", "runtime", "workspace")


def parts(report: Report, view: View) -> dict[str, Any]:
    """Everything that the template needs."""
    listed = [table._replace(folded=False) for table in ops.costliest(report)]
    program = told.tunable(report)
    return {
        "report": report, "facts": [told.step(report), *told.program(report), *loops(report)],
        "ledger": ledger(report), "phases": phases(report), "history": history(report, view.steps),
        "timeline": timeline(view.timeline, view.mask), "gauges": gauges(view),
        "roofline": roofline(report), "memory": memory(report),
        "tables": [*listed, *ops.grouped(report)], "unknown": unknown(report), "findings": findings(report, view),
        "doubts": [finding for finding in report.findings if is_doubt(finding)], "skipped": told.skipped(report),
        "about": about(report), "next_command": f"gobrrr tune {program}" if program else "",
    }  # fmt: skip


def about(report: Report) -> list[Fact]:
    """Where and how the recording was made."""
    return facts([
        ("program", [cleaned_command(report.command)]), ("recording", [report.recording]),
        ("rank", [told.rank(report)]), ("machine", [report.machine]),
        ("threads", [str(report.threads) if report.machine else ""]), ("versions", [told.versions(report.versions)]),
        ("missing", ["; ".join(report.missing)]),
    ])  # fmt: skip


def roofline(report: Report) -> dict[str, Any]:
    """The ops under the ceilings, numbered as in the first table, and the step as a whole."""
    roof = report.roofline
    chart = charts.roofline(_points(report), roof.ceiling_flop_rate or 0.0, roof.ceiling_byte_rate or 0.0)
    lines = [*map(plainly, resources.roofline(report))]
    if not lines and roof.not_counted_share >= SHOWN:
        lines = [f"ops whose work is not known: {resources.hole(roof)}"]
    if chart:
        measured = roof.ceiling or "measured on this machine"
        flops, moved = units.flop_rate(roof.ceiling_flop_rate or 0), units.byte_rate(roof.ceiling_byte_rate or 0)
        lines.append(f"Ceilings ({measured}): {flops} and {moved} of memory. Numbers are those of the table of ops, "
                     "areas are shares of the step. What fits into caches may lie above the slope.")  # fmt: skip
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
    return [f"No ops by {table.by}: {ops.because(table, report)}." for table in report.tables if table.why]


def memory(report: Report) -> dict[str, Any]:
    """The peak by role, what was alive then, which activations are kept, and growth."""
    if report.device and report.device.memory:
        lines = [*map(plainly, resources.device_memory(report.device.memory))]
        return {"peak": "", "chart": "", "rows": [], "lines": lines, "saved": None}
    book = report.memory
    sizes = [(role, getattr(book, role)) for role in ROLES]
    known = [(role.replace("_", " "), size) for role, size in sizes if size]
    whole = book.peak or sum(size for _, size in known) or 1
    stacked = _stacked("The peak of memory by role", known, units.size, whole)
    lines = [*map(plainly, resources.memory_notes(report))]
    if book.growth_per_step is not None and book.growth_per_step < 1:
        lines.append("does not grow from step to step")
    heads = (("kept for backward by", False), ("op", False), ("tensors", True), ("size", True))
    kept = tuple((Cell(saver(s)), Cell(s.op), Cell(str(s.count), s.count), Cell(units.size(s.num_bytes), s.num_bytes))
                 for s in report.saved)  # fmt: skip
    return {
        "peak": units.size(book.peak) if book.peak is not None else "",
        "lines": lines, **stacked,
        "saved": Table("Largest activations kept for backward", heads, kept) if kept else None,
    }  # fmt: skip


KIND = {"green": "work", "yellow": "loss", "red": "idle", "dim": "rest"}
MEANS = {"work": "at a ceiling of the machine", "loss": "torch's own, or above the ceiling", "idle": "no op runs",
         "rest": "nobody claims it"}  # fmt: skip
SAID = {"plain": "as measured", "slow": "more than 1.5 times the median", "warm-up": "dropped",
        "window": "profiled, not in the median", "other": "settling, or of another kind"}  # fmt: skip


def kind_of(account: str) -> str:
    """Class of an account in the style sheet."""
    return KIND[ACCOUNTS.get(account, ("dim", ""))[0]]


def ledger(report: Report) -> dict[str, Any]:
    """Chart, rows and total. Everything of the ledger is there: what nobody owns too."""
    percents = tenths([account.share for account in report.ledger])
    parts, rows = [], []
    for account, percent in zip(report.ledger, percents, strict=True):
        name, kind = account.account.replace("_", " "), kind_of(account.account)
        said = f"{name}: {units.duration(account.ns)}, {percent:.1f} %"
        parts.append(Part(name, account.ns, kind, said))
        empty = account.ns <= 0 and account.account != "unattributed"
        rows.append({"name": name, "swatch": charts.swatch(kind), "time": units.duration(account.ns), "none": empty,
                     "percent": f"{percent:.1f} %", "gloss": gloss(account.account, report),
                     "bar": charts.share_bar([(account.share, kind)], said)})  # fmt: skip
    used = {part.kind for part in parts if part.value > 0}
    total = sum(account.ns for account in report.ledger)
    return {
        "chart": charts.stack(parts, "The step by account"), "rows": [row for row in rows if not row["none"]],
        "none": [row["name"] for row in rows if row["none"]],
        "total": units.duration(total), "percent": f"{sum(percents):.1f} %",
        "key": [(charts.swatch(kind), words) for kind, words in MEANS.items() if kind in used],
    }  # fmt: skip


def phases(report: Report) -> dict[str, Any]:
    """Chart and rows of the phases, in the order in which a step runs through them."""
    known = [(name, ns) for name, ns in report.phases if ns > 0]
    return _stacked("The step by phase", known, units.duration, sum(ns for _, ns in known) or 1.0)


def _stacked(
    label: str, known: Iterable[tuple[str, float]], say: Callable[[float], str], whole: float
) -> dict[str, Any]:
    """Chart and rows of figures, each with its share of the whole."""
    parts = [Part(name, size, f"phase{i % 7}", f"{name}: {say(size)}") for i, (name, size) in enumerate(known)]
    rows = [(charts.swatch(part.kind), part.name, say(part.value), units.share(part.value / whole)) for part in parts]
    return {"chart": charts.stack(parts, label), "rows": rows}


def history(report: Report, times: Sequence[StepTime]) -> dict[str, Any]:
    """The steps of the run, where they are known."""
    kinds = [kind for kind in KINDS if any(step.kind == kind for step in times)]
    counted = {kind: sum(step.kind == kind for step in times) for kind in kinds}
    return {
        "chart": charts.steps(times, report.step.plain_wall_ns),
        "key": [(charts.mark(kind), f"{kind}: {counted[kind]}", SAID[kind]) for kind in kinds],
    }


WORDS = {
    "op": "an op", "annotation": "an annotation", "wait": "a wait for data", "call": "a call to the device",
    "kernel": "a kernel", "copy": "a copy or a set", "communication": "communication", "line": "a line of yours",
}  # fmt: skip


def timeline(found: Timeline | None, mask: Callable[[str], str] = str) -> dict[str, Any]:
    """Chart, key, idle by cause and notes, with what is masked; nothing where there is no timeline."""
    if found is None:
        return {"chart": "", "memory": ""}
    found = _masked(found, mask)
    used = {piece.kind for lane in found.lanes for row in lane.rows for piece in row}
    return {
        "chart": timeline_chart(found), "number": found.number, "num_steps": found.num_steps,
        "ns": units.duration(found.ns), "joined": units.duration(found.joined_ns), "num_events": found.num_events,
        "left_out": found.left_out, "memory": memory_chart(found.memory, found.ns), "idle": _idle(found),
        "key": [(charts.swatch(f"slice k-{kind}"), words) for kind, words in WORDS.items() if kind in used],
    }  # fmt: skip


def gauges(view: View) -> list[tuple[str, Any]]:
    """Return a chart of the gauges for each device, with its name."""
    found = view.gauges
    return [(view.mask(name), gauges_chart(found, view.mask(name), it)) for name, it in found.devices] if found else []


def _masked(found: Timeline, mask: Callable[[str], str]) -> Timeline:
    def piece(it: Slice) -> Slice:
        at = it.said.where
        where = Span(mask(at.file), at.line, mask(at.function)) if at else None
        return it._replace(said=Said(mask(it.said.name), mask(it.said.shapes), where))

    lanes = (Lane(mask(lane.name), tuple(tuple(map(piece, row)) for row in lane.rows)) for lane in found.lanes)
    return found if mask is str else found._replace(lanes=tuple(lanes))


def _idle(found: Timeline) -> list[tuple[Any, str, str, str]]:
    """Return idle time by its cause, the longest first: rows of shares()."""
    return [(charts.swatch(f"slice k-{cause}"), CAUSES[cause], units.duration(ns), units.share(ns / (found.ns or 1)))
            for cause, ns in sorted(found.idle, key=lambda each: -each[1]) if ns and cause in CAUSES]  # fmt: skip
