"""Saving of computing a loader's samples once, where they are seen to draw nothing random."""

from __future__ import annotations

from typing import NamedTuple

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.data.loader_advice import Loading, batch_bytes
from gobrrr.rules.data.wait_stages import Wait
from gobrrr.rules.model.cores import batches_per_step
from gobrrr.rules.model.evidence import count, time
from gobrrr.rules.model.finding import Quantity

SAVED_BY_KEEPING, LOOKS = "saved_by_keeping", "batches_without_draws"
LEAST_LOOKS = 8
"""Batches, all of them without a draw, from which samples are taken to be the same each time. What one in twenty
batches draws is missed with probability 0.66: `computed_once` looks at each before it keeps it."""
SAMPLE_NS = 10_000.0
"""Time in ns to take a kept sample of a few numbers from memory: 6 us (docs/decisions/0020), on a slow core."""


class Keeping(NamedTuple):
    """`saved_ns`: per step, from the second epoch on. `comes_again`: whether samples were seen to."""

    looks: int
    saved_ns: float
    comes_again: bool


def keeping(ledger: Ledger, machine: Machine, loading: Loading, found: Wait) -> Keeping | None:
    """None where nobody looked, something was drawn, workers load (what they draw is not looked at), or samples have no
    index to be kept by."""
    loader = found.loader
    if (
        loader.stream
        or loader.num_workers
        or loader.num_looked < LEAST_LOOKS
        or loader.num_drew
        or loader.length is None
    ):
        return None
    num_bytes = batch_bytes(ledger)
    copied = 2.0 * num_bytes * 1e9 / machine.byte_rate(num_bytes, 1) if num_bytes else 0.0
    reading = batches_per_step(ledger) * ((loader.batch_size or 1) * SAMPLE_NS + copied)
    left = (found.collate_share or 0.0) * loading.pipeline.cpu_ns + reading
    saved = loading.cheaper(0.0, min(left, loading.pipeline.cpu_ns + loading.pipeline.blocked_ns))
    return Keeping(loader.num_looked, saved, loader.comes_again)


def quantities(found: Keeping | None) -> dict[str, Quantity]:
    """Return the evidence of it; a saving only where there are epochs to save in."""
    if found is None:
        return {}
    saved = {SAVED_BY_KEEPING: time(found.saved_ns)} if found.comes_again else {}
    return {LOOKS: count(found.looks)} | saved


KEEPER = "computed_once"


def offered(found: Keeping | None, remedies: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a rule's remedies that serve here."""
    helps = found is not None and found.comes_again
    return tuple(name for name in remedies if helps or name != KEEPER)


def also_kept(found: Keeping | None) -> str:
    """Say that samples may also be kept, where they come again as they were."""
    return f"; where it does more, {_kept(found.looks)}" if found is not None and found.comes_again else ""


def _kept(looks: int) -> str:
    return f'DataLoader(gobrrr.data.cache(dataset, "samples"), ...): none of {looks} batches drew a random number'


def advice(found: Keeping | None, otherwise: str) -> str:
    """Advise to keep samples where they may be kept; else repeat the rule's own words."""
    if found is None:
        return otherwise
    kept = _kept(found.looks)
    return f"Compute each sample once: {kept}." if found.comes_again else f"{otherwise} From a second epoch on: {kept}."
