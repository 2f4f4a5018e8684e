"""Says in words how much watching cost."""

from __future__ import annotations

from gobrrr.report.text.bars import finite
from gobrrr.rules.verdict.report import Report


def watching_cost(report: Report) -> str:
    """Say what the hooks of the plain phase cost: measured against steps without them, or else only a lower bound."""
    cost, low, high = (
        100 * finite(x or 0.0) for x in (report.overhead_share, report.overhead_low, report.overhead_high)
    )
    if report.overhead_high is None:
        return f"watching cost at least {cost:.2f} % of the step"
    return f"watching cost {cost:.2f} % of the step ({low:.2f} to {high:.2f} %)"
