"""The findings in the text report: by cost, each with its line of source, what is wrong and what to do."""

from __future__ import annotations

import textwrap
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.recording.model.facts import Span
from gobrrr.report.text.page import Page, phrase
from gobrrr.report.told.findings import COLORS, FREE, basis, costly
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.report import Report

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
        codes = ", ".join(page.clean(code) + (f" x{count}" if count > 1 else "") for code, count in counted)
        block.append(phrase((f"and {len(folded)} note{'s' if len(folded) > 1 else ''}: {codes}", "dim")))
    return block


def _finding(finding: Finding, column: int, page: Page) -> list[RenderableType]:
    """Heading, place, message, advice; a note has its place and message in one line and no advice."""
    message = page.clean(finding.message)
    if finding.severity == "note":
        place = f"{page.clean(shown(finding.where[0], page.root))}  " if finding.where else ""
        return [_head(finding, column, page), page.under(phrase((place, "cyan"), message))]
    lines = [_place(finding.where, page)] if finding.where else []
    return [_head(finding, column, page), page.under(*lines, Text(message), *_advice(finding, page))]


def in_brief(finding: Finding, page: Page, lines: int, advised: int) -> list[RenderableType]:
    """Heading, place, the message and the advice in so many lines."""
    width = page.width - 4
    place = [_place(finding.where[:1], page)] if finding.where else []
    message = shortened(page.clean(finding.message), width, lines)
    advice = shortened(page.clean(f"→ {finding.advice}"), width, advised)
    return [_head(finding, 0, page), page.under(*place, message, *([advice] if finding.advice else []))]


def shortened(text: str, width: int, lines: int) -> Text:
    """Return the text in at most `lines` lines of `width` columns."""
    return Text("\n".join(textwrap.wrap(text, max(width, 20), max_lines=lines, placeholder=" ...")))


def _head(finding: Finding, column: int, page: Page) -> Text:
    """'BRR401 critical  data-wait  up to 41.2 ms  (estimated 30.0, at least 12.0)', in columns."""
    style = COLORS.get(finding.severity, "")
    return phrase(
        (page.clean(finding.code), "bold"), " ", (f"{page.clean(finding.severity):<8}", style), "  ",
        (f"{page.clean(finding.name):<{column}}", "bold"), "  ", *_cost(finding, page),
    )  # fmt: skip


def _cost(finding: Finding, page: Page) -> list[str | tuple[str, str]]:
    parts: list[str | tuple[str, str]] = _time(finding, page) if finding.saving.ceiling_ns > 0 else []
    if finding.cost_bytes is not None:
        parts += ["  " if parts else "", (units.size(finding.cost_bytes), "bold")]
    return parts or [(FREE, "dim")]


def _time(finding: Finding, page: Page) -> list[str | tuple[str, str]]:
    saving, ceiling = finding.saving, finding.saving.ceiling_ns
    expected, low = units.bare(saving.expected_ns, ceiling), units.bare(saving.low_ns, ceiling)
    least = "at least" if page.width >= 90 else "low"
    return ["up to ", (f"{units.duration(ceiling):>7}", "bold"), f"  ({basis(finding)} {expected}, {least} {low})"]


def _place(where: tuple[Span, ...], page: Page) -> Text:
    """'train.py:41 main  for x, y in loader:  from run.py:12': the line as it reads, and who called it."""
    place = page.clean(shown(where[0], page.root))
    function = page.clean(where[0].function)
    callers = ", ".join(page.clean(shown(span, page.root)) for span in where[1 : 1 + NUM_CALLERS])
    callers = f"  from {callers}" if callers else ""
    room = page.width - 4 - len(place) - len(function) - len(callers) - 3
    quoted = page.clip(page.source(where[0].file, where[0].line), max(24, room))
    return phrase(
        (place, "cyan underline"), f" {function}" if function else "", (f"  {quoted}" if quoted else "", "italic"),
        (callers, "dim"),
    )  # fmt: skip


def _advice(finding: Finding, page: Page) -> list[Text]:
    names = ", ".join(map(page.clean, finding.remedies))
    remedies = f"{'  ' if finding.advice else ''}remedies: {names}" if names else ""
    if not finding.advice and not remedies:
        return []
    return [phrase((page.clean("→ "), "green"), page.clean(finding.advice), (remedies, "green"))]
