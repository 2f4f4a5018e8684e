"""The findings on the page: cost, place, the lines of source around it, what to do, and the page of the code."""

from __future__ import annotations

import re
import shlex
from typing import Any

from markupsafe import Markup, escape

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.html import charts
from gobrrr.report.told.excerpts import Excerpts, excerpts
from gobrrr.report.told.findings import cost, costly
from gobrrr.report.told.report import EDITS, tunable
from gobrrr.rules.model.finding import SEVERITIES, Finding, Quantity
from gobrrr.rules.pages import text_of
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.report import Report


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
        (saving.ceiling_ns / wall, "most"), (saving.expected_ns / wall, "expected"), (saving.low_ns / wall, "least"),
    ]  # fmt: skip
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
    names = ",".join(name for name in finding.remedies if name not in EDITS)
    return f"gobrrr tune --only {shlex.quote(names)} {program}" if program and names else ""


_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|(https://[^\s)>\]]+[^\s)>\].,;:])")


def page_of(code: str) -> Markup:
    """The page of a code; empty for what is none."""
    return page_as_html(text_of(code))


def page_as_html(text: str) -> Markup:
    """Headings, lists, indented code and paragraphs; in them code, bold and addresses. The title is left out."""
    blocks = [_block(block) for block in re.split(r"\n\s*\n|(?<=^#)\n|\n(?=- )|(?<=\n)(?=##)", text) if block.strip()]
    return Markup("\n").join(block for block in blocks if block)


def _block(block: str) -> Markup:
    block = block.strip("\n")
    if block.startswith("# "):
        return Markup()
    if block.startswith("## "):
        head, _, rest = block[3:].partition("\n")
        return Markup("<h4>{}</h4>").format(head) + (_block(rest) if rest.strip() else Markup())
    if block.startswith("    "):
        return Markup("<pre>{}</pre>").format("\n".join(line.removeprefix("    ") for line in block.split("\n")))
    if block.startswith("- "):
        return Markup('<p class="item">{}</p>').format(_inline(block[2:]))
    return Markup("<p>{}</p>").format(_inline(block))


def _inline(text: str) -> Markup:
    parts, at = [], 0
    for found in _INLINE.finditer(text):
        code, bold, address = found.groups()
        parts += [escape(text[at : found.start()])]
        parts += [Markup("<code>{}</code>").format(code)] if code else []
        parts += [Markup("<b>{}</b>").format(bold)] if bold else []
        parts += [Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(address)] if address else []
        at = found.end()
    return Markup().join([*parts, escape(text[at:])])
