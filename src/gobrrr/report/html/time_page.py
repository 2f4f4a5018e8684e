"""Where the time goes, on the page: the ledger and the phases as stacks that sum to the step, and every step's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gobrrr import units
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part
from gobrrr.report.timeline.timeline import KINDS, StepTime
from gobrrr.report.told.bars import tenths
from gobrrr.report.told.resources import ACCOUNTS, gloss
from gobrrr.rules.verdict.report import Report

KIND = {"green": "work", "yellow": "loss", "red": "idle", "dim": "rest"}
MEANS = {"work": "at a ceiling of the machine", "loss": "torch's own, or above the ceiling", "idle": "no op runs",
         "rest": "nobody claims it"}  # fmt: skip
SAID = {"plain": "as measured", "slow": "more than 1.5 times the median", "warm-up": "dropped",
        "window": "looked at closely, not in the median", "other": "settling, or of another kind"}  # fmt: skip


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
    total = sum(ns for _, ns in known) or 1.0
    parts = [
        Part(name, ns, f"phase{index % 7}", f"{name}: {units.duration(ns)}") for index, (name, ns) in enumerate(known)
    ]
    rows = [(charts.swatch(part.kind), part.name, units.duration(part.value), units.share(part.value / total))
            for part in parts]  # fmt: skip
    return {"chart": charts.stack(parts, "The step by phase"), "rows": rows}


def history(report: Report, times: Sequence[StepTime]) -> dict[str, Any]:
    """The steps of the run, where they are known."""
    kinds = [kind for kind in KINDS if any(step.kind == kind for step in times)]
    counted = {kind: sum(step.kind == kind for step in times) for kind in kinds}
    return {
        "chart": charts.steps(times, report.step.plain_wall_ns),
        "key": [(charts.mark(kind), f"{kind}: {counted[kind]}", SAID[kind]) for kind in kinds],
    }
