"""BRR313: inference that hands the model one sample per call."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model import Ledger
from gobrrr.machine.model import Machine
from gobrrr.rules.decoding import growing
from gobrrr.rules.evidence import count, time, worth_telling
from gobrrr.rules.model import Finding, finding, rule
from gobrrr.units import duration, share

FEWEST = 16
"""Steps from which on samples come in a row, so that they could come together."""
SPREAD, SPARE = 0.7, 0.3
"""Of what is paid per call (dispatch, Python, weights read), and of ops above their floors, what a batch gives back:
small products run at a part of their rate."""


@rule("BRR313", "one-sample-per-call", "overhead", needs={"plain", "ops", "facts"})
def one_sample_per_call(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """A loop of forwards whose inputs hold one sample each: every call pays for its ops and reads all weights."""
    inputs = [given for given in ledger.facts.inputs if len(given.shape) >= 2]
    if ledger.step.kind != "inference" or ledger.step.count < FEWEST or not inputs:
        return
    if any(given.shape[0] != 1 for given in inputs) or growing(ledger) is not None:
        return  # a text that is read anew for each token is BRR314's, and its time is not there twice
    per_call = sum(ledger.account(name) for name in ("dispatch", "host", "bandwidth"))
    above = ledger.account("inefficiency")
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
