"""BRR310: numbers so small that the processor handles them in microcode."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import DenormalFacts
from gobrrr.rules.model.cores import crowded
from gobrrr.rules.model.evidence import ratio, time, worth_telling
from gobrrr.rules.model.finding import Finding, finding, rule
from gobrrr.rules.model.shapes import costliest_line, key, total
from gobrrr.rules.overhead.small_op_loops import is_tiny
from gobrrr.units import duration, share

DENORMAL_SHARE = 0.01
"""Below it healthy nets have some (tails of a softmax). A subnormal costs 10 to 100 normal ones where the processor is
slow with them, so that one in a hundred can double an op (proposed)."""
SLOWED = 3.0
"""Ratio of an op's time to floor and dispatch from which it counts as slowed (proposed)."""

FLOOR_DOUBT = 0.5
"""Share of an op's floor that it may stay below: ceilings are measured at one moment, and swing by a factor of two and
more with a shared machine's neighbours (docs/decisions/0005)."""


@rule("BRR310", "denormals", "overhead", needs={"plain", "ops", "facts"}, remedies=("flush_denormal",))
def denormals(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Subnormal values, and ops on them that run far above their floor. On a busy machine all ops do; an
    accelerator's units take them as they come."""
    seen = [each for each in ledger.facts.denormals if each.share >= DENORMAL_SHARE]
    if not seen or ledger.device is not None or ledger.facts.settings.flush_denormal or crowded(ledger, machine):
        return
    touched = [op for op in ledger.ops if any(_touches(ledger, op, each) for each in seen)]
    slow = [op for op in touched if _slowed(op, machine)]
    # Tiny ops are slowed too, though it cannot be shown.
    above = sum(max(0.0, op.ns - FLOOR_DOUBT * op.floor_ns) for op in touched)
    lost = sum(op.ns - op.floor_ns - op.dispatch_ns for op in slow)
    if not worth_telling(ledger, 0.8 * lost):
        return
    worst = max(seen, key=lambda each: each.share)
    times = total(slow) / max(1.0, sum(op.floor_ns for op in slow))
    yield finding(
        "BRR310",
        ledger,
        low=0.3 * lost,
        expected=0.8 * lost,
        ceiling=max(lost, above, ledger.account("inefficiency")),
        message=f"{share(worst.share)} of the values of {worst.name or 'a tensor'} are denormal, and ops on them "
        f"take {times:.0f} times their floor: {duration(lost)} lost",
        advice="Call torch.set_flush_denormal(True) at the start, and see why values shrink below 1e-38.",
        where=costliest_line(slow) or ((worst.span,) if worst.span else ()),
        evidence={"denormal_share": ratio(worst.share), "slow_ops": time(total(slow)), "lost": time(lost)},
        confidence="inferred",
    )


def _slowed(op: OpGroup, machine: Machine) -> bool:
    return op.floor_ns > 0 and not is_tiny(op, machine) and op.ns > SLOWED * (op.floor_ns + op.dispatch_ns)


def _touches(ledger: Ledger, op: OpGroup, seen: DenormalFacts) -> bool:
    """Inputs are known by their shape, activations by the line that saved them; of the rest any op may be one."""
    if seen.name == "input":
        inputs = [given.shape for given in ledger.facts.inputs if given.span == seen.span and given.shape]
        return any(prod(s) == prod(i) and s[-1] == i[-1] for i in inputs for s in op.shapes if s)
    if seen.name == "activation" and seen.span is not None:
        return key(op.where) == (seen.span.file, seen.span.line)
    return True
