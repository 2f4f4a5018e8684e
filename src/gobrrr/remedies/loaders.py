"""What the findings tell the remedies that set a loader's workers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gobrrr.rules.model import Saving

if TYPE_CHECKING:
    from gobrrr.rules.verdict.model import Report


def most_said(report: Report, codes: Collection[str], name: str) -> float | None:
    """The largest figure of that name in the evidence of findings with these codes; None where none has it."""
    said = [f.evidence[name].value for f in report.findings if f.code in codes and name in f.evidence]
    return max((float(value) for value in said if not isinstance(value, str)), default=None)


def of_the_model(saving: Saving, report: Report, codes: Collection[str], name: str) -> Saving:
    """`saving`, with what the loader model expects, where it was asked (of a trace it is not)."""
    said = most_said(report, codes, name)
    if said is None:
        return saving
    expected = min(said, saving.ceiling_ns)
    return Saving(min(saving.low_ns, expected), expected, saving.ceiling_ns)
