"""BRR604: loader workers that come to hold a copy each of what they were to share."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import LoaderFacts, Span
from gobrrr.rules.model.cores import batches_per_step, first_span, worker_groups
from gobrrr.rules.model.evidence import count, size
from gobrrr.rules.model.finding import Finding, finding, rule
from gobrrr.units import size as bytes_text

LEAST_PER_STEP = 256 << 10
"""A sample of a list touches some pages of 4 KiB: sixteen of them, four pages each, are as much."""
LEAST = 64 << 20
"""Within a thousand steps, or while workers live: less is nobody's concern."""
STEPS = 1_000
"""Steps over which growth must reach `LEAST` (proposed: a run of an hour or two makes thousands; the length of real
runs would settle it)."""
ROOM = 0.5
"""Share of the free memory that copies of all that the main process holds may need before it is a warning."""


@rule("BRR604", "worker-memory-grows", "memory", needs={"plain", "facts", "workers"})
def worker_memory_grows(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Memory that forked workers hold alone grows with every batch: pages that they share with the main process are
    copied as Python counts references in them, or the data set keeps what it makes."""
    loader, seen = ledger.facts.main_loader, ledger.worker_memory
    if loader is None or not loader.num_workers or seen is None or seen.growth_per_batch is None:
        return
    per_step = batches_per_step(ledger)
    growth = seen.growth_per_batch * per_step
    life = _life(loader)
    if growth < LEAST_PER_STEP or seen.growth_per_batch * min(STEPS * per_step, life) < LEAST:
        return
    limit = ledger.facts.memory_limit or machine.memory_bytes
    own = ledger.facts.rss_bytes or 0
    left = max(0, limit - own - seen.held)
    copies = max(0, loader.num_workers * own - seen.held)
    more = seen.growth_per_batch * life
    yield finding(
        "BRR604",
        ledger,
        low=0.0,
        expected=0.0,
        ceiling=0.0,
        message=f"What {loader.num_workers} workers hold alone grew steadily by {bytes_text(growth)} per step, "
        f"{bytes_text(seen.held)} by then: if it goes on, "
        + (
            f"all come to {bytes_text(more)} more in an epoch of {life:.0f} batches, copies of what they share"
            if more < copies
            else f"each comes to a copy of what it shares with the main process ({bytes_text(own)})"
        )
        + ", or its data set keeps what it makes",
        advice="Keep what samples are made from in arrays or tensors (numbers in one array, texts as bytes with "
        "offsets), not in lists and dicts of Python objects, and no cache in the data set.",
        where=_where(ledger),
        evidence={
            "growth_per_step": size(growth),
            "held_by_workers": size(seen.held),
            "main_process": size(own),
            "num_workers": count(loader.num_workers),
            "free": size(left),
        },
        cost_bytes=round(growth),
        confidence="derived",
        level="warning" if min(copies, more) > ROOM * left else None,
    )


def _life(loader: LoaderFacts) -> float:
    """Batches of the loop after which new workers are started; endless where they persist, or no end is known."""
    if loader.persistent_workers:
        return inf
    if loader.num_epochs > 1:
        return loader.num_batches / loader.num_epochs
    if loader.stream or not loader.length or not loader.batch_size:
        return inf
    return max(loader.num_batches, loader.length / loader.batch_size)


def _where(ledger: Ledger) -> tuple[Span, ...]:
    loader = ledger.facts.main_loader
    lines = [group for group in worker_groups(ledger, loader) if group.kind == "getitem" and group.where]
    top = max(lines, key=lambda group: group.ns, default=None)
    return first_span(loader.dataset_span, loader.created_span) if loader and not top else top.where if top else ()
