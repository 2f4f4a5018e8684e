"""BRR316: distributions that check every argument, each time they are made and each time they are asked."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, per_step, time, worth_telling
from gobrrr.rules.model.finding import Finding, finding, rule, whole
from gobrrr.rules.model.lines import SAMPLING, Functions, averaged, mostly_rare, spent
from gobrrr.rules.sync.waits_for_host import launches

_BASE = ("torch.distributions.distribution.",)
MADE = (Functions(_BASE, frozenset({"__init__"})),)
ASKED = (Functions(_BASE, frozenset({"_validate_sample"})),)
"""The two places where torch checks. They do not nest, so that their times add up."""
ANSWER = "aten::_is_all_true"
"""The op that both end with: without it nothing was checked, and what was sampled is the rest of __init__."""
CHECKS = 0.9
"""Share of the sampled time that goes with the checks (proposed): the rest of __init__ sets two attributes."""


@rule("BRR316", "arguments-checked-again", "overhead", needs={"plain", "ops"}, remedies=("unchecked_distributions",))
def arguments_checked_again(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """torch.distributions with its checks on, in a step of small ops."""
    checks = list(ledger.named(ANSWER))
    found = sorted(averaged(ledger, spent(ledger, MADE) + spent(ledger, ASKED)), key=lambda line: -line.ns)
    rare = mostly_rare(found)
    step = whole(ledger, rare)
    cost = min(step, sum(line.ns for line in found))
    if not checks or not worth_telling(ledger, CHECKS * cost):
        return
    calls = sum(op.calls for op in checks)
    often = "in some steps" if rare else f"{calls:.0f} times per step"
    waits = ", and each waits for the device" if ledger.device is not None and launches(ledger) else ""
    yield finding(
        "BRR316",
        ledger,
        low=0.0,  # where validate_args=True is given, the switch does nothing
        expected=CHECKS * cost,
        ceiling=min(step, (1 + SAMPLING) * cost),
        message=f"torch.distributions checks its arguments {often}: {per_step(ledger, cost, rare)}{waits}",
        advice="torch.distributions.Distribution.set_default_validate_args(False) at the start, once it all works.",
        where=found[0].where,
        evidence={"checking": time(cost), "checks": count(calls)},
        confidence="measured",
        rare=rare,
    )
