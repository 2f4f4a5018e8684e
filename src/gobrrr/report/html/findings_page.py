"""The findings on the page: cost, place, the lines around it, what to do, and the page of the code."""

from __future__ import annotations

import shlex
from typing import Any

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.html import charts
from gobrrr.report.html.code_page import page_of
from gobrrr.report.html.excerpt import Excerpts, excerpts
from gobrrr.report.told.findings import cost, costly
from gobrrr.report.told.report import tunable
from gobrrr.rules.model.finding import Finding, Quantity
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.report import Report

SEVERITIES = ("critical", "warning", "note")


def findings(report: Report, view: View) -> list[dict[str, Any]]:
    """In the report's order, the costliest first; doubts have their own place. The page of a code comes with the first
    finding that has it."""
    source = excerpts(view.root, view.anywhere, view.mask, view.recorded_ns)
    told: set[str] = set()
    found = []
    for finding in costly(report):
        found.append(_finding(finding, report, view, source, finding.code not in told))
        told.add(finding.code)
    return found


def next_command(report: Report) -> str:
    """Return the command that tries the remedies; empty where there is none."""
    program = tunable(report)
    return f"gobrrr tune {program}" if program else ""


def _finding(finding: Finding, report: Report, view: View, source: Excerpts, first: bool) -> dict[str, Any]:
    where = finding.where[:1]
    return {
        "it": finding, "severity": finding.severity if finding.severity in SEVERITIES else "note",
        "cost": cost(finding), "bar": _bar(finding, report.step.whole_ns(finding.rare)),
        "places": [(shown(span, view.root), span.function) for span in finding.where],
        "excerpt": source(where[0]) if where else None, "line": where[0].line if where else 0,
        "evidence": [(name.replace("_", " "), _figure(each)) for name, each in sorted(finding.evidence.items())],
        "rehearsed": [(played.remedy, _change(played.change_ns)) for played in finding.rehearsed],
        "command": _command(finding, report), "page": page_of(finding.code) if first else "",
    }  # fmt: skip


def _bar(finding: Finding, wall: float) -> Any:
    saving = finding.saving
    if saving.ceiling_ns <= 0 or wall <= 0:
        return ""
    shares = [
        (saving.ceiling_ns / wall, "most"),
        (saving.expected_ns / wall, "expected"),
        (saving.low_ns / wall, "least"),
    ]
    return charts.share_bar(shares, f"{cost(finding)}, of a step of {units.duration(wall)}")


def _figure(quantity: Quantity) -> str:
    value = quantity.value
    if isinstance(value, str):
        return value
    say = {"ns": units.duration, "B": units.size, "FLOP/s": units.flop_rate, "B/s": units.byte_rate}.get(quantity.unit)
    return say(value) if say else f"{value:,.6g} {quantity.unit}".removesuffix(" 1").strip()


def _change(ns: float) -> str:
    return f"saves {units.duration(-ns)}" if ns < 0 else f"costs {units.duration(ns)}" if ns > 0 else "changes nothing"


def _command(finding: Finding, report: Report) -> str:
    """Its own remedies alone, tried on the program."""
    program = tunable(report)
    names = ",".join(finding.remedies)
    return f"gobrrr tune --only {shlex.quote(names)} {program}" if program and names else ""
