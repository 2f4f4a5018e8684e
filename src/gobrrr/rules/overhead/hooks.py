"""BRR317: hooks that are registered again and again, and never removed."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, rule
from gobrrr.rules.model.lines import made_at
from gobrrr.units import duration, share

PER_THOUSAND = 1
"""Hooks that join in a thousand steps, from which they pile up: what is registered once is there at the first look."""
SURE = 0.5
"""Share of the growth that is promised at least: something else may grow beside it (proposed)."""


@rule("BRR317", "overhead", needs={"plain", "facts"})
def hooks_pile_up(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Steps lengthen, and the modules have more hooks with each: every forward runs all of them."""
    grown = ledger.step.grown_ns
    found = max(ledger.facts.modules, key=lambda module: module.hooks_per_step, default=None)
    if found is None or 1000 * found.hooks_per_step < PER_THOUSAND or not worth_telling(ledger, grown):
        return
    called = (found.span,) if found.span else ()
    more = f"{1000 * found.hooks_per_step:,.0f} more hooks in 1,000 steps"
    yield Cause(
        saving=(SURE * grown, grown, max(grown, ledger.wall)),
        message=f"{found.kind} gets {more}, and each forward runs all: steps grew by {duration(grown)} "
        f"({share(grown / ledger.wall)})",
        advice="Keep the handle that register_..._hook returns, and call handle.remove(); or register once, before the "
        "loop.",
        where=(*made_at(ledger, called, r"\bregister_\w*hook\("), *called),
        evidence={
            "hooks_per_step": Quantity(found.hooks_per_step, "1"), "hooks": Quantity(found.hooks, "1"),
            "grown": time(grown),
        },
        holds=grown,
    )  # fmt: skip
