"""Where the time goes, in the text report: accounts as bars that sum to the step, and phases."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.report.text.page import GUTTER, Page, phrase
from gobrrr.report.told.bars import bar, tenths
from gobrrr.report.told.resources import ACCOUNTS, gloss
from gobrrr.rules.verdict.report import Report

LONGEST, SHORTEST, GLOSS, BESIDE = 20, 5, 30, 45
"""Columns of a bar, of the longest gloss, and of what else is in a line: where it is narrow the bars give way."""
SMALL = 0.005
"""Accounts below half a percent share one line."""


def time(report: Report, page: Page, most: int = len(ACCOUNTS)) -> list[RenderableType]:
    """The time ledger as bars that sum to the step, the `most` largest accounts and the rest as one, and the phases."""
    if not report.ledger:
        return []
    rows = _rows(report, most)
    if not any(ns for _, ns, _, _ in rows):
        return []
    percents = tenths([share for _, _, share, _ in rows])
    lines = [_account(page, row, percent) for row, percent in zip(rows, percents, strict=True)]
    total = f"\n{units.duration(sum(ns for _, ns, _, _ in rows))}\n{sum(percents):.1f} %"
    label = phrase(("time", "bold"), (total if len(rows) > 2 else "", "dim"))
    return [page.indented(label, lines, GUTTER), *(_phases(report, page) if most == len(ACCOUNTS) else [])]


def _phases(report: Report, page: Page) -> list[RenderableType]:
    """All in the step's unit, so that they compare at a glance."""
    wall = report.step.plain_wall_ns
    unit = units.duration(wall).split(" ")[1]
    parts = [f"{name} {units.bare(ns, wall)}" for name, ns in report.phases if ns > 0]
    return [page.row("phases", f"{' · '.join(parts)} {unit}")] if parts else []


Row = tuple[str, float, float, str]
"""(account, ns, share, gloss)."""


def _rows(report: Report, most: int) -> list[Row]:
    """Accounts of size in the ledger's order, the small ones as one, what nobody owns last."""
    last = "unattributed" if most == len(ACCOUNTS) else ""
    ranked = sorted((a for a in report.ledger if a.account != last), key=lambda a: -a.ns)
    kept = {a.account for a in ranked[:most] if a.share >= SMALL}
    large = [a for a in report.ledger if a.account in kept]
    small = [a for a in report.ledger if a.account not in kept and a.account != last and a.ns > 0]
    rows = [(a.account, a.ns, a.share, gloss(a.account, report)) for a in large]
    if small:
        names = ", ".join(a.account.replace("_", " ") for a in small)
        rows.append(("other", sum(a.ns for a in small), sum(a.share for a in small), names))
    rest = [a for a in report.ledger if a.account == last]
    if not last:
        return rows
    rows.append((last, sum(a.ns for a in rest), sum(a.share for a in rest), gloss(last, report)))
    return rows


def _account(page: Page, row: Row, percent: float) -> Text:
    name, ns, share, means = row
    style = ACCOUNTS.get(name, ("dim", ""))[0]
    length = max(SHORTEST, min(LONGEST, page.width - BESIDE - GLOSS))
    drawn = page.clean(bar(share, length))
    room = page.width - BESIDE - length
    label = page.clip(name.replace("_", " "), 13)
    return phrase(
        f"{label:<13} {percent:>5.1f} % {units.duration(ns):>9}  ", (f"{drawn:<{length}}", style),
        (f"  {page.clip(means, room)}" if room > 12 else "", "dim"),
    )  # fmt: skip
