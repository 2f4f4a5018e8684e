"""A report in the logger that the training writes to already: its figures as scalars, its verdict as text."""

from __future__ import annotations

import io
from typing import Any

from gobrrr.rules.verdict.report import Report

PREFIX = "gobrrr/"


def scalars(report: Report) -> dict[str, float]:
    """gobrrr/step_ms, gobrrr/share/<account> (of the step, 0 to 1), gobrrr/finding/<code>_ms (expected back)."""
    found = {f"{PREFIX}step_ms": report.step.plain_wall_ns / 1e6}
    found |= {f"{PREFIX}share/{account.account}": account.share for account in report.ledger}
    for finding in report.findings:
        if finding.saving.expected_ns:
            key = f"{PREFIX}finding/{finding.code}_ms"
            found[key] = found.get(key, 0.0) + finding.saving.expected_ns / 1e6
    return found


def log(report: Report, to: Any, step: int | None = None) -> None:
    """Into a TensorBoard SummaryWriter, a run of Weights & Biases, the module mlflow, or a Logger of Lightning.

    Raises TypeError for what has none of their methods.
    """
    figures = scalars(report)
    writer: Any = to if hasattr(to, "add_scalar") else getattr(to, "experiment", None)
    if hasattr(writer, "add_scalar") and hasattr(writer, "add_text"):  # a SummaryWriter has no method for many at once
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        writer.add_text(f"{PREFIX}report", f"```\n{_text(report)}\n```", step)
    elif hasattr(to, "log_metrics"):
        to.log_metrics(figures, step=step)
        if hasattr(to, "log_text") and not hasattr(to, "experiment"):  # mlflow's; Lightning's of that name is another
            to.log_text(_text(report), "gobrrr.txt")
    elif hasattr(to, "log") and hasattr(to, "summary"):
        to.log(figures, step=step)
        to.summary[f"{PREFIX}verdict"] = report.verdict.sentence
    else:
        raise TypeError(f"{type(to).__name__} is no SummaryWriter, run of Weights & Biases, mlflow or Lightning logger")


def _text(report: Report) -> str:
    from gobrrr.report.text.report import show

    page = io.StringIO()
    show(report, page)
    return page.getvalue()
