"""Findings told: what each costs, where it lies, what to do."""

from __future__ import annotations

from gobrrr import units
from gobrrr.report.told.blocks import Block, Cell, Table, facts, time_cell
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.report import Report
from gobrrr.rules.verdict.sentence import is_doubt

COLORS = {"critical": "bold red", "warning": "bold yellow", "note": "cyan"}
"""Style of each severity in a terminal."""
FREE = "costs nothing on this device"
NUM_FINDINGS = 10  # findings in the table at most; proposed: fits a comment; settled by what readers miss


def costly(report: Report) -> list[Finding]:
    """Everything that costs time or bytes, the costliest first; doubts have their own place."""
    return [finding for finding in report.findings if not is_doubt(finding)]


def table(report: Report, root: str) -> list[Block]:
    """The costliest, and how many more there are."""
    found = costly(report)
    heads = (("finding", False), ("where", False), ("up to", True), ("expected", True), ("at least", True),
             ("what", False))  # fmt: skip
    rows = tuple(_row(finding, root) for finding in found[:NUM_FINDINGS])
    more = len(found) - NUM_FINDINGS
    return [*([Table("", heads, rows)] if rows else []), *facts([("more", [f"{more} findings"] if more > 0 else [])])]


def _row(finding: Finding, root: str) -> tuple[Cell, ...]:
    saving, place = finding.saving, shown(finding.where[0], root) if finding.where else ""
    times = map(time_cell, (saving.ceiling_ns, saving.expected_ns, saving.low_ns))
    name = Cell(f"{finding.code} {finding.severity}: {finding.name}")
    return name, Cell(place, code=True), *times, Cell(said(finding))


def said(finding: Finding, cost: str = "", between: str = "") -> str:
    """Return the message with its cost and a full stop, and the advice."""
    return " ".join(filter(None, (f"{finding.message.rstrip('.')}{cost}.", between, finding.advice)))


def basis(finding: Finding) -> str:
    """How the saving is known."""
    guessed = "inferred" if finding.confidence == "inferred" else "estimated"
    guessed = "from an example" if "pair" in finding.evidence else guessed
    return "rehearsed here" if finding.basis == "rehearsed" else guessed


def cost(finding: Finding) -> str:
    """'up to 319 ms per step, 174 ms expected (rehearsed here), at least 0 ns; 32.0 MiB'."""
    saving, parts = finding.saving, []
    if saving.ceiling_ns > 0:
        most, expected, low = map(units.duration, (saving.ceiling_ns, saving.expected_ns, saving.low_ns))
        parts.append(f"up to {most} per step, {expected} expected ({basis(finding)}), at least {low}")
    parts += [units.size(finding.cost_bytes)] if finding.cost_bytes is not None else []
    return "; ".join(parts) or FREE
