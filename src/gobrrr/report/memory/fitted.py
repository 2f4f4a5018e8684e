"""Whether an edit makes a program fit, for a person."""

from __future__ import annotations

from gobrrr.report.told.blocks import Fact, Groups, Sentence
from gobrrr.trial.receipt.swept import Fitted
from gobrrr.units import several, size


def blocks(found: Fitted) -> Groups:
    """Return the verdict, how the program as it is dies, and what is left where it still does."""
    facts = [Fact("as it is", [f"{found.plain.sentence}."])]
    if found.again is not None:
        more = found.again.shortage.missing
        lines = [f"{found.again.sentence}.", found.again.reason]
        facts.append(Fact("edited", lines + ([f"at least {size(more)} are missing"] if more else [])))
    if found.fits and found.guard.reasons:
        facts.append(Fact("numbers", list(found.guard.reasons)))
    style = "bold green" if found.exit_code == 0 else "bold red"
    return [[Sentence((((headline(found), style),),))], list(facts)]


def headline(found: Fitted) -> str:
    """'low.diff makes it fit: 412 steps, where the program dies after 3; numbers match at batch_size=8.'"""
    if not found.fits:
        still = f"it runs out of memory after {several('step', found.steps)}" if found.again else f"it {found.ended}"
        return f"{found.edit} does not make it fit: {still}."
    before = several("step", found.plain.failed.steps or 0)
    numbers = (
        "numbers match" if found.guard.green else "its numbers are others" if found.guard.red else "numbers unverified"
    )
    at = f" at {found.batch}" if found.batch else ""
    steps = several("step", found.steps)
    return f"{found.edit} makes it fit: {steps}, where the program dies after {before}; {numbers}{at}."
