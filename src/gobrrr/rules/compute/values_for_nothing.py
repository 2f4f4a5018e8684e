"""BRR114 to BRR118: what is computed for nothing, by the values that ops read: known before, or read by nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.ledger.model.sums import sums
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.compute.unused_work import below
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, rule
from gobrrr.rules.model.shapes import costliest_line, total
from gobrrr.units import duration, share


def _is_told(ledger: Ledger, expected_ns: float) -> bool:
    """Whether it is worth telling, and was seen: what compiled code reads and writes is not."""
    return not ledger.facts.compile.used and worth_telling(ledger, expected_ns)


def _evidence(ops: list[OpGroup], ns: float) -> dict[str, Quantity]:
    return {"ops": count(sum(op.calls for op in ops)), "time": time(ns)}


@rule("BRR114", "compute", needs={"ops"}, on_device=True)
def same_in_every_step(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Ops that compute the same in every step, because nothing that they read ever changes."""
    ops = [op for op in ledger.ops if op.fate == "constant"]
    again = total(ops)
    if not _is_told(ledger, 0.85 * again):
        return
    yield Cause(
        saving=(0.5 * again, 0.85 * again, 1.3 * again),
        message=f"{sum(op.calls for op in ops):.0f} ops compute the same in every step, since nothing that they read "
        f"changes: {duration(again)}, {share(again / ledger.wall)} of the step",
        advice="Compute it once, before the loop or in __init__ (register_buffer), and use the result.",
        where=costliest_line(ops),
        evidence=_evidence(ops, again),
        of=ops,
    )


ALL = 0.75
"""Share of the time below a line that is spent on what was computed before, from which the line is a second call.
Proposed."""


@rule("BRR115", "compute", needs={"ops"}, on_device=True)
def same_twice_in_a_step(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Ops that compute what another op of the step has computed, of the same values."""
    ops = [op for op in ledger.ops if op.fate == "repeated" and not op.recomputed and op.phase != "backward"]
    there: dict[tuple[Span, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for op in ledger.ops:
        there[op.where][2 if op.phase == "backward" else int(op.fate == "repeated" and not op.recomputed)] += op.ns
    again = total(ops) + sum(after for new, old, after in there.values() if old >= ALL * (new + old) > 0)
    if not _is_told(ledger, 0.85 * again):
        return
    yield Cause(
        saving=(0.5 * again, 0.85 * again, 1.3 * again),
        message=f"{sum(op.calls for op in ops):.0f} ops compute what the same step has computed before: "
        f"{duration(again)} with backward, {share(again / ledger.wall)} of the step",
        advice="Keep the first result and use it again; detach() it where no gradient is wanted.",
        where=_second_call(ledger, ops),
        evidence=_evidence(ops, again),
        of=ops,
    )


def _second_call(ledger: Ledger, ops: list[OpGroup]) -> tuple[Span, ...]:
    """The line, with those around it, below which most of these ops lie and little else; the innermost of such."""
    where = costliest_line(ops)
    held = [(total(op for op in ops if below(op.where, span)), at) for at, span in enumerate(where)]
    forward = [op for op in ledger.ops if op.phase != "backward"]
    lines = [(ns, -at) for ns, at in held if ns >= ALL * total(op for op in forward if below(op.where, where[at]))]
    return where[-max(lines)[1] :] if lines else where


@rule("BRR116", "compute", needs={"ops"}, on_device=True)
def read_in_part(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Products of which only some rows are read: the last position's logits, the first token's, the masked ones'."""
    ops = [op for op in ledger.ops if op.read < 1]
    unread = sums((op.where, (1 - op.read) * op.ns) for op in ops)
    forward = sums((op.where, op.ns) for op in ledger.ops if op.phase != "backward")
    backward = sums((op.where, op.ns) for op in ledger.ops if op.phase == "backward")
    again = sum(ns * (1 + backward.get(where, 0.0) / forward[where]) for where, ns in unread.items())
    if not _is_told(ledger, 0.8 * again):
        return
    most = max(op.read for op in ops)
    yield Cause(
        saving=(0.4 * again, 0.8 * again, 1.1 * again),
        message=f"at most {share(max(most, 0.001))} of what these products compute is read: {duration(again)} for "
        f"nothing, {share(again / ledger.wall)} of the step",
        advice="Take those rows or positions first (x[:, -1]) and multiply afterwards.",
        where=costliest_line(ops),
        evidence=_evidence(ops, again) | {"read": ratio(most)},
        of=ops,
    )


@rule("BRR117", "compute", needs={"ops"}, on_device=True)
def changes_no_weight(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Ops of a training step that no weight depends on: pictures, figures and evaluation in every step."""
    ops = [op for op in ledger.ops if op.fate == "for no weight"]
    idle = total(ops)
    if not _is_told(ledger, 0.8 * idle):
        return
    yield Cause(
        saving=(0.4 * idle, 0.8 * idle, 1.1 * idle),
        message=f"{sum(op.calls for op in ops):.0f} ops of each step change no weight: they serve pictures, figures or "
        f"nothing, for {duration(idle)}, {share(idle / ledger.wall)} of the step",
        advice="Do it every hundredth step, or after training.",
        where=costliest_line(ops),
        evidence=_evidence(ops, idle),
        of=ops,
    )


@rule("BRR118", "compute", needs={"ops"}, on_device=True)
def graph_of_earlier_steps(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Backward goes through the graphs of earlier steps too: a running mean or a state was never detached."""
    ops, carried = [op for op in ledger.ops if op.fate == "earlier"], [op for op in ledger.ops if op.fate == "carried"]
    again = max(total(ops), ledger.step.grown_ns)
    if not carried or not worth_telling(ledger, 0.9 * again):
        return
    yield Cause(
        saving=(0.5 * again, 0.9 * again, max(again, ledger.phase("backward"))),
        message="backward also goes through the graphs of all earlier steps, so each step takes longer: a value "
        "carried from step to step was not detached",
        advice="detach() what is carried from step to step, before it is added; then retain_graph is not needed.",
        where=costliest_line(carried),
        evidence={"time": time(total(ops)), "growth": time(ledger.step.grown_ns)},
        holds=again,
    )
