"""Recording, ledger, findings, report: what every verb does with a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from gobrrr.data.advice import Advice, simulate
from gobrrr.ledger.model.ledger import Ledger, Sequences, Ways
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import Machine
from gobrrr.rehearsal.perform import SECONDS
from gobrrr.rules.verdict.report import Report


def judged(
    profiled: Profiled,
    machine: Machine,
    /,
    *,
    portability: bool = False,
    stage: str = "",
    rehearsal_s: float = SECONDS,
    also: Sequence[str] = (),
    **told: Any,
) -> tuple[Ledger, Report]:
    """Account, judge, report. `told` goes into the report as it is.

    `stage`: the Python that rehearses what the findings promise, in `rehearsal_s` at most, and the remedies `also`;
    without one they stay estimated.
    """
    from gobrrr.ledger.build import build_ledger
    from gobrrr.rehearsal.findings import Rehearsal
    from gobrrr.rules import judge
    from gobrrr.rules.verdict.build import build

    ledger = simulated(build_ledger(profiled, machine))
    play = Rehearsal(ledger, machine, profiled.recording.start, stage, rehearsal_s, also) if stage else None
    findings, skipped = judge(ledger, machine, portability=portability, rehearsed=play)
    known = machine if machine.fingerprint else None
    return ledger, build(ledger, known, findings, skipped=skipped, portability=portability,
                         rehearsed=play.outcomes if play else (), **told)  # fmt: skip


FINEST, LARGEST_BATCH = 16_384, 1_024
"""Longer rows are simulated in units of several tokens, and larger batches as this one: a file may say anything, and
the answer is to be there in a second."""


def simulated(ledger: Ledger) -> Ledger:
    """The ledger with what each way of making batches would reach, where the lengths are known."""
    found = ledger.sequences
    if found is None or not found.lengths:
        return ledger
    return replace(ledger, sequences=replace(found, ways=_ways(_advice(found))))


def _advice(found: Sequences) -> Advice:
    unit = -(-found.widest // FINEST)
    histogram: Counter[int] = Counter()
    for length, number in found.lengths:
        histogram[-(-length // unit)] += number
    batch_size = min(found.batch_size, LARGEST_BATCH)
    return simulate(histogram, batch_size=batch_size, capacity=-(-found.widest // unit))


def _ways(advice: Advice) -> Ways:
    return Ways(
        advice.pad_to_cap, advice.pad_in_collate, advice.bucketing, advice.packing, advice.packing_bound,
        advice.long_share, advice.nothing_to_gain,
    )  # fmt: skip
