"""How far can the report be relied on: high, fair or low, and which one reason matters most?"""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.rules.model.finding import WARNING, Finding
from gobrrr.rules.verdict.report import Confidence
from gobrrr.rules.verdict.sentence import UNTIMED, clause, costliest, worst_doubts
from gobrrr.units import share

MORE_STEPS = "let the program make more steps"


def confidence(ledger: Ledger, findings: Sequence[Finding], bound: str) -> Confidence:
    """Low: the verdict is unreliable. Fair, by the first that holds: a finding of band 9 is a warning; the step has no
    interval, or one wider than the saving (the smallest that is told, where no cause is); every step ran under the
    profiler. Else high."""
    doubts = worst_doubts(findings)
    if bound == "unreliable" or doubts:
        level = "low" if bound == "unreliable" else "fair"
        if not doubts:
            return Confidence(level, UNTIMED.partition(";")[0], "", MORE_STEPS)
        first = doubts[0]
        return Confidence(level, clause(first.message), first.code, clause(first.advice.partition(". ")[0]))
    step, top = ledger.step, costliest(ledger, findings)
    width = (step.high_ns - step.low_ns) / ledger.wall if 0 < step.low_ns <= step.high_ns else None
    saving = top.saving.expected_ns / ledger.wall if top is not None else WARNING
    if width is None:
        if "unmarked" in ledger.signals:
            return Confidence("fair", "the file does not say where a step ends", "", "mark each step")
        return Confidence(
            "fair", f"{step.plain_count} timed step{'s' * (step.plain_count > 1)} without an interval", "", MORE_STEPS
        )
    if width >= saving:
        said = f"the step's 95 % interval is {share(width)} wide, the saving {share(saving)}"
        return Confidence("fair", said, "", MORE_STEPS)
    if "offline" in ledger.signals:
        return Confidence("fair", "every step ran under the profiler", "", "time the step without it")
    return Confidence("high", f"{step.plain_count} plain steps, the 95 % interval is {share(width)} wide")
