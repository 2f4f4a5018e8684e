"""The findings in the text report: by cost, each with its line of source, what is wrong and what to do."""

from __future__ import annotations

import textwrap
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.recording.model.facts import Span
from gobrrr.report.text.page import Page
from gobrrr.report.told.blocks import Line, Words
from gobrrr.report.told.findings import COLORS, FREE, basis, costly
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.report import Report
from gobrrr.units import several

NUM_NOTES = 3
"""Notes in full; the rest are named by their codes."""
NUM_CALLERS = 2  # callers named behind a place; proposed: fit on a line; settled by findings that need a third
COST = 60
"""Columns of a heading without its name."""


def costs(report: Report, page: Page) -> list[RenderableType]:
    """Everything that costs time or bytes, the costliest first; doubts have their own place."""
    found = costly(report)
    folded = [f for f in found if f.severity == "note"][NUM_NOTES:]
    full = [f for f in found if not any(f is note for note in folded)]
    names = max((len(f.name) for f in full), default=0)
    column = min(names, max(0, page.width - COST))
    block = [part for f in full for part in _finding(f, column, page)]
    if folded:
        counted = [(code, len(list(same))) for code, same in groupby(sorted(f.code for f in folded))]
        codes = ", ".join(code + (f" x{count}" if count > 1 else "") for code, count in counted)
        block.append(page.line(((f"and {several('note', len(folded))}: {codes}", "dim"),)))
    return block


def _finding(finding: Finding, column: int, page: Page) -> list[RenderableType]:
    """Heading, place, message, advice; a note has its place and message in one line and no advice."""
    head = _head(finding, column, page)
    if finding.severity == "note":
        place = f"{shown(finding.where[0], page.root)}  " if finding.where else ""
        return [head, page.under(((place, "cyan"), finding.message))]
    names = ", ".join(finding.remedies)
    remedies = f"{'  ' if finding.advice else ''}remedies: {names}" if names else ""
    advice: list[Line] = [(("→ ", "green"), finding.advice, (remedies, "green"))] if finding.advice or names else []
    return [head, page.under(*_place(finding.where, page), finding.message, *advice)]


def in_brief(finding: Finding, page: Page, lines: int, advised: int) -> list[RenderableType]:
    """Heading, place, the message and the advice in so many lines."""
    told = [(finding.message, lines), (f"→ {finding.advice}", advised if finding.advice else 0)]
    width = max(page.width - 4, 20)
    short = [Text("\n".join(textwrap.wrap(page.clean(words), width, max_lines=most, placeholder=" ...")))
             for words, most in told if most]  # fmt: skip
    return [_head(finding, 0, page), page.under(*_place(finding.where[:1], page), *short)]


def _head(finding: Finding, column: int, page: Page) -> Text:
    """'BRR401 critical  data-wait  up to 41.2 ms  (estimated 30.0, at least 12.0)', in columns."""
    saving, cost = finding.saving, list[Words]()
    if saving.ceiling_ns > 0:
        expected, low = (units.bare(ns, saving.ceiling_ns) for ns in (saving.expected_ns, saving.low_ns))
        least = "at least" if page.width >= 90 else "low"
        known = f"  ({basis(finding)} {expected}, {least} {low})"
        cost = ["up to ", (f"{units.duration(saving.ceiling_ns):>7}", "bold"), known]
    if finding.cost_bytes is not None:
        cost += ["  " if cost else "", (units.size(finding.cost_bytes), "bold")]
    return page.line((
        (finding.code, "bold"), " ", (f"{page.clean(finding.severity):<8}", COLORS.get(finding.severity, "")), "  ",
        (f"{page.clean(finding.name):<{column}}", "bold"), "  ", *(cost or [(FREE, "dim")]),
    ))  # fmt: skip


def _place(where: tuple[Span, ...], page: Page) -> list[Text]:
    """'train.py:41 main  for x, y in loader:  from run.py:12': the line as it reads, and who called it."""
    if not where:
        return []
    place, function = page.clean(shown(where[0], page.root)), page.clean(where[0].function)
    callers = ", ".join(page.clean(shown(span, page.root)) for span in where[1 : 1 + NUM_CALLERS])
    callers = f"  from {callers}" if callers else ""
    room = page.width - 4 - len(place) - len(function) - len(callers) - 3
    quoted = page.clip(page.source(where[0].file, where[0].line), max(24, room))
    return [page.line((
        (place, "cyan underline"), f" {function}" if function else "", (f"  {quoted}" if quoted else "", "italic"),
        (callers, "dim"),
    ))]  # fmt: skip
