"""BRR113: forwards of layers that never train, computed anew from the same inputs in every epoch."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model import Ledger, OpGroup
from gobrrr.machine.model import Machine
from gobrrr.rules.evidence import count, ratio, time, worth_telling
from gobrrr.rules.keeping import LEAST_LOOKS
from gobrrr.rules.model import Finding, finding, rule
from gobrrr.rules.shapes import by_line, costliest_line
from gobrrr.units import duration, share

LEAST = 0.2
"""Share of a line's FLOPs without a gradient from which it says something: a loss by products, the first layer's inputs
and causal halves move the two sums by less."""


@rule("BRR113", "frozen-layers-computed-anew", "compute", needs={"ops", "facts"}, on_device=True)
def frozen_layers(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """A model of which a part is frozen: what that part makes of an input is the same in every epoch."""
    models = [m for m in ledger.facts.modules if m.calls_per_step and 0 < m.trainable_params < m.num_params]
    if ledger.step.kind != "training" or not models:
        return
    parts = {place: part for place, part in _frozen_parts(ledger).items() if part >= LEAST}
    frozen = [op for op in ledger.ops if op.phase == "forward" and op.where and op.where[0].place in parts]
    ns = sum(parts[op.where[0].place] * op.ns for op in frozen)
    again = _same_inputs(ledger)
    expected = (0.9 if again else 0.5) * ns
    if not worth_telling(ledger, expected):
        return
    model = max(models, key=lambda m: m.num_params - m.trainable_params)
    yield finding(
        "BRR113",
        ledger,
        low=0.5 * ns if again else 0.0,
        expected=expected,
        ceiling=ns,
        message=f"{duration(ns)} ({share(ns / ledger.wall)} of the step) are forwards of layers of "
        f"{model.kind or 'the model'} that never train: no gradient passes them, and the same input gives the same "
        f"output in every epoch{f', and none of {again} batches drew a random number' if again else ''}",
        advice="Run them once over the data, keep what they give, and train what follows on that"
        + ("." if again else "; where inputs are drawn anew each time, keep a few draws of each."),
        where=costliest_line(frozen),
        evidence={
            "forward_without_gradient": time(ns),
            "frozen_parameters": count(model.num_params - model.trainable_params),
            "trained_share": ratio(model.trainable_params / model.num_params),
        },
        of=frozen,
        holds=ns,
        confidence="inferred",
    )


def _frozen_parts(ledger: Ledger) -> dict[tuple[str, int], float]:
    """Of each line's forward FLOPs the least share that no gradient passes: what one passes has backward FLOPs of at
    least its own (one product for the input or the weight, two for both)."""
    found: dict[tuple[str, int], float] = {}
    for span, ops in by_line(op for op in ledger.ops if op.phase in ("forward", "backward")).items():
        forward, backward = (sum(op.flops or 0.0 for op in ops if _is(op, phase)) for phase in ("forward", "backward"))
        if span is not None and forward:
            found[span.place] = max(0.0, 1.0 - backward / forward)
    return found


def _is(op: OpGroup, phase: str) -> bool:
    return op.phase == phase and not op.recomputed


def _same_inputs(ledger: Ledger) -> int:
    """Batches of the loaders that were looked at, where there were enough and none drew a random number."""
    loaders = [loader for loader in ledger.facts.loaders if loader.num_looked]
    looks = sum(loader.num_looked for loader in loaders)
    return looks if looks >= LEAST_LOOKS and not any(loader.num_drew for loader in loaders) else 0
