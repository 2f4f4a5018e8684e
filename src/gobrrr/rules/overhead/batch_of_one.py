"""BRR313: inference that hands the model one sample per call."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import InputFacts
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Finding, finding, rule
from gobrrr.rules.model.shapes import factors
from gobrrr.rules.overhead.decoding import growing
from gobrrr.units import duration, share

FEWEST = 16
"""Steps from which on samples come in a row, so that they could come together."""
SPREAD, SPARE = 0.7, 0.3
"""Share of the cost per call (dispatch, Python, weights read) that a batch saves, and share of small ops' time above
their floors."""
FEW_ROWS = 64
"""Products of fewer run at a part of their rate: with a 768 x 3072 matrix of 1, 8 and 64 rows at 6, 65 and all
(measured, per cent)."""


@rule("BRR313", "one-sample-per-call", "overhead", needs={"plain", "ops", "facts"})
def one_sample_per_call(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """A loop of forwards whose inputs hold one sample each: every call pays for its ops and reads all weights. What
    grows with the batch (activations, products of many rows) does not come back."""
    inputs = [given for given in ledger.facts.inputs if len(given.shape) >= 2]
    if ledger.step.kind != "inference" or ledger.step.count < FEWEST or not inputs:
        return
    if not all(_is_one(given) for given in inputs) or growing(ledger) is not None:
        return  # a text that is read anew for each token is BRR314's, and its time is not there twice
    ops = ledger.ops if ledger.device is None else ledger.device_ops
    per_call = ledger.account("dispatch") + _python(ledger, machine) + sum(op.floor_ns * _weights(op) for op in ops)
    above = sum(max(0.0, op.ns - op.floor_ns - op.dispatch_ns) for op in ops if _is_small(op, machine))
    expected = SPREAD * per_call + SPARE * above
    if not worth_telling(ledger, expected):
        return
    modules = [module for module in ledger.facts.modules if module.calls_per_step and module.span]
    span = max(modules, key=lambda module: module.num_params).span if modules else inputs[0].span
    yield finding(
        "BRR313",
        ledger,
        low=0.3 * per_call,
        expected=expected,
        ceiling=per_call + above,
        message=f"The model gets one sample per call ({'x'.join(map(str, inputs[0].shape))}): {duration(per_call)} "
        f"({share(per_call / ledger.wall)} of the step) is paid per call whatever is in it",
        advice="Hand over many at once: a batch, a list for a pipeline or an encoder, several prompts for generate().",
        where=(span,) if span else (),
        evidence={"per_call": time(per_call), "above_the_floors": time(above), "steps": count(ledger.step.count)},
        confidence="inferred",
        both=True,
    )


def _is_one(given: InputFacts) -> bool:
    """One sample, also where the second dimension may be the batch."""
    return given.shape[0] == 1 and (given.shape[1] == 1 or not given.turned)


def _python(ledger: Ledger, machine: Machine) -> float:
    """Time between ops, without what giving pages back takes: larger tensors have more of them."""
    pages = (ledger.facts.minor_faults_per_step or 0.0) * machine.fresh_page.median if ledger.device is None else 0.0
    return max(0.0, ledger.account("host") - pages)


def _weights(op: OpGroup) -> float:
    """Return the weights' share of the bytes of a product that is bound by them."""
    pair = factors(op)
    if op.bound != "bandwidth" or pair is None or len(pair[1]) != 2:
        return 0.0
    rows, (inner, columns) = pair[0][:-1], pair[1]
    return inner * columns / (inner * columns + prod(rows) * (inner + columns))


def _is_small(op: OpGroup, machine: Machine) -> bool:
    """A product of few rows, or an op that does less than calling it costs: a batch of them takes hardly longer."""
    if op.bound is None:
        return False
    pair = factors(op)
    if pair is not None and len(pair[1]) == 2:
        return prod(pair[0][:-1]) < FEW_ROWS
    return op.floor_ns < machine.dispatch.median * op.calls
