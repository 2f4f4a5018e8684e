"""BRR601 to BRR604: memory that grows, runs out, or costs more per parameter than training needs."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import HeldGraph, LoaderFacts, Span
from gobrrr.rules.model.cores import batches_per_step, first_span, worker_groups
from gobrrr.rules.model.evidence import count, ratio, size, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, fitting, rule
from gobrrr.units import PAGE, several, share
from gobrrr.units import size as bytes_text

CREEP_BYTES = 1 << 27
"""Bytes by which a run must have grown where no container was seen to: caches grow too, for a while (proposed: leaks of
4 MiB a step in runs of a minute went unsaid at 1 GiB; growth of healthy programs would settle it)."""
CREEP_PER_STEP = 1 << 20
"""Bytes per step from which growth counts (proposed: 1 GiB within a thousand steps; the growth of healthy programs
would settle it)."""
# Steps until memory is full: a run of an hour or two makes thousands.
FULL_SOON, FULL_LATER = 1_000, 10_000
# Share of the limit. gpuprof warns at 90 and 97 %, TraceML at 92 and 97 %.
PRESSURE, CRITICAL_PRESSURE = 0.90, 0.97
SWAPPED = 64 << 20
"""Bytes of the process in swap from which it is told (proposed: idle pages are swapped out without harm; step times
against bytes in swap would settle it)."""
# Parameter, gradient and two moments in fp32 are 16 bytes; mixed precision with a 16-bit copy 18.
BYTES_PER_PARAMETER = 18.0
WORTH_BYTES = 16 << 20
"""Less is nobody's concern, whatever it is per parameter."""


@rule("BRR601", "memory")
def memory_grows(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A container that keeps tensors with their graphs, or memory that rises with every step."""
    there = ledger.device_memory
    growth = max(0.0, ledger.facts.rss_growth_per_step or 0.0, (there.growth_per_step or 0.0) if there else 0.0)
    grows = [each for each in ledger.facts.held_graphs if each.growth_per_step >= 0.5]
    worth = (each for each in grows if each.graph or _kept(each) >= CREEP_PER_STEP)
    held = max(worth, key=lambda each: (each.graph, _kept(each), each.growth_per_step), default=None)
    growth = max(growth, _kept(held) if held and not held.graph else 0.0)
    creeps = growth >= CREEP_PER_STEP and growth * max(ledger.step.count, FULL_SOON if there else 0) >= CREEP_BYTES
    if held is None and not creeps:
        return
    pages = growth / PAGE * machine.fresh_page.median
    if ledger.device is not None:  # its own memory has no pages, and what the host touches beside it costs nothing
        on_host = max(0.0, ledger.facts.rss_growth_per_step or 0.0)
        pages = min(on_host / PAGE * machine.fresh_page.median, ledger.device.starved_ns)
    # What is kept cannot be used again: every page of it is a fresh one. A graph that grows makes backward longer too.
    drift = max(0.0, ledger.step.drift) if held and held.graph else 0.0
    longer = drift / (1 + drift) * ledger.wall  # of the last third's step, the part that the first third's had not
    freed = (ledger.facts.minor_faults_per_step or 0.0) * machine.fresh_page.high * 1.3
    beside = _written(ledger, held) + (ledger.facts.gc_ns_per_step or 0.0)
    steps = _left(ledger, machine) / growth if growth else inf
    per_hour = growth * 3.6e12 / ledger.wall if growth else 0.0
    # Critical where memory is full within a thousand steps, warning within ten thousand; else by the time it costs.
    level = "critical" if steps < FULL_SOON else "warning" if steps < FULL_LATER else None
    yield Cause(
        saving=(0.3 * pages, 0.8 * pages + 0.4 * longer, max(pages, freed) + longer + beside),
        message=fitting(
            _what_grows(held),
            f": {bytes_text(1000 * growth)} per 1,000 steps, {bytes_text(per_hour)} per hour" if growth else "",
            f"; full after {steps:,.0f} more steps" if steps < FULL_LATER else "",
        ),
        advice=_instead(held),
        where=first_span(held.span if held else None),
        evidence={
            "growth_per_step": size(growth),
            "steps_until_full": count(steps if growth else 0),
            "entries_per_step": count(held.growth_per_step if held else 0),
            "drift_of_the_step": ratio(ledger.step.drift),
            "fresh_pages": time(pages),
        },
        cost_bytes=round(growth) or None,
        confidence="measured" if held else "inferred",
        level=level,
    )


def _written(ledger: Ledger, held: HeldGraph | None) -> float:
    """Return the ns per step that ops below the line that keeps their results spend above their floors: on memory that
    is never warm."""
    if held is None or held.span is None:
        return 0.0
    place = held.span.place
    below = [op for op in ledger.ops if any(span.place == place for span in op.where)]
    return sum(max(0.0, op.ns - op.floor_ns) for op in below)


def _kept(held: HeldGraph) -> float:
    """Return the bytes per step that a container keeps."""
    return held.growth_per_step * held.storage_bytes


def _is_view(held: HeldGraph) -> bool:
    """Whether most of what an item holds is no part of it."""
    return held.storage_bytes > 2 * held.own_bytes


def _what_grows(held: HeldGraph | None) -> str:
    if held is None:
        return "Memory grows, and no line was seen to keep it"
    if held.graph:
        return f"{held.name} keeps {held.length} tensors with their graphs, {held.growth_per_step:.0f} more per step"
    views = f", views of {bytes_text(held.storage_bytes)} each" if _is_view(held) else ""
    return f"{held.name} keeps {held.length} tensors{views}"


def _instead(held: HeldGraph | None) -> str:
    if held is None:
        return "Look for what the loop keeps from step to step: lists, caches, hooks, state carried without detach()."
    if held.graph:
        return "Keep numbers, not tensors with a graph: loss.item() or loss.detach()."
    if _is_view(held):
        return "Keep a copy of what is needed, tensor.clone(): a view keeps the whole tensor that it is cut from."
    return "Keep what is needed of them (numbers, a running mean), or write them to a file now and then."


def _left(ledger: Ledger, machine: Machine) -> float:
    there = ledger.device_memory
    if there is not None:
        return float(max(0, (there.capacity or there.peak) - there.peak))
    limit = ledger.facts.memory_limit or machine.memory_bytes
    return max(0.0, float(limit - (ledger.facts.rss_bytes or 0)))


@rule("BRR602", "memory", remedies=("bf16_autocast", "activation_checkpointing", "compile_memory_budget"))
def memory_pressure(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Peak memory near the limit, swap in use, or an allocator that must ask the driver in every step: the next larger
    batch dies, this one crawls, or steps are lost to errors that the program catches."""
    peak, limit = peak_and_limit(ledger, machine)
    part = peak / limit if limit else 0.0
    swapped = (ledger.facts.swap_used or 0) >= SWAPPED
    stalled = _stalled(ledger)
    failed = ledger.facts.device_failed or 0
    if part < PRESSURE and not swapped and not failed and not worth_telling(ledger, stalled):
        return
    there = ledger.device_memory
    calls = there.driver_calls if there else 0.0
    yield Cause(
        saving=(0.3 * stalled, 0.8 * stalled, 0.5 * ledger.wall if swapped else stalled),
        message=fitting(
            f"Peak memory is {bytes_text(peak)}" + (f", {share(part)} of {bytes_text(limit)}" if limit else ""),
            f"; {bytes_text(ledger.facts.swap_used or 0)} of this process lie in swap" if swapped else "",
            f"; {calls:.0f} call{'s'[: calls >= 1.5]} to the driver for memory stall every step" if stalled else "",
            f"; {several('allocation', failed)} of the device failed" if failed else "",
        ),
        advice="Take a smaller micro-batch with accumulation, checkpoint activations, or free what is not used.",
        where=there.where if there else (),
        evidence={
            "peak": size(peak),
            "limit": size(limit),
            "share": ratio(part),
            "stalled": time(stalled),
            "failed_in_all": count(failed),
            **{name: size(held) for name, held in ledger.memory.alive_at_peak[:3]},
        },
        cost_bytes=peak,
        confidence="measured",
        level="critical" if part >= CRITICAL_PRESSURE or swapped or failed else "warning",
    )


def peak_and_limit(ledger: Ledger, machine: Machine) -> tuple[int, int]:
    """Bytes, of the accelerator where one works; 0 where unknown."""
    if ledger.device is None:
        return ledger.facts.peak_rss_bytes or ledger.memory.peak or 0, ledger.facts.memory_limit or machine.memory_bytes
    there = ledger.device.memory
    known = machine.device.memory_bytes if machine.device else 0
    if there is not None:
        return there.peak, known if there.capacity is None else there.capacity
    return ledger.memory.peak or 0, known


def _stalled(ledger: Ledger) -> float:
    """Idle of the device while the allocator asks the driver, in steps that all do so."""
    there = ledger.device_memory
    if ledger.device is None or there is None or there.driver_calls < 1:
        return 0.0
    return dict(ledger.device.idle_by_cause).get("allocator", 0.0)


@rule("BRR603", "memory", needs={"facts"})
def bytes_per_parameter(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Parameters, gradients and optimizer state above what mixed-precision Adam needs."""
    memory = ledger.memory
    each = memory.bytes_per_parameter or 0.0
    held = sum(part or 0 for part in (memory.parameters, memory.gradients, memory.optimizer_state))
    if each <= BYTES_PER_PARAMETER * 1.02 or not held:
        return
    spare = round(held * (1 - BYTES_PER_PARAMETER / each))
    if spare < WORTH_BYTES:
        return
    yield Cause(
        message=f"Training holds {each:.1f} bytes per parameter; mixed-precision Adam needs 16 to 18: "
        f"{bytes_text(spare)} more than that",
        advice="Look for double-precision state, amsgrad, or a second copy of the parameters.",
        where=tuple(o.span for o in ledger.facts.optimizers[:1] if o.span),
        evidence={
            "bytes_per_parameter": Quantity(round(each, 1), "B"),
            "parameters": size(memory.parameters or 0),
            "gradients": size(memory.gradients or 0),
            "optimizer_state": size(memory.optimizer_state or 0),
        },
        cost_bytes=spare,
        confidence="measured",
        level="note",
    )


LEAST_PER_STEP = 256 << 10
"""A sample of a list touches some pages of 4 KiB: sixteen of them, four pages each, are as much."""
LEAST = 64 << 20
"""Within a thousand steps, or while workers live: less is nobody's concern."""
STEPS = 1_000
"""Steps over which growth must reach `LEAST` (proposed: a run of an hour or two makes thousands; the length of real
runs would settle it)."""
ROOM = 0.5
"""Share of the free memory that copies of all that the main process holds may need before it is a warning."""


@rule("BRR604", "memory", needs={"plain", "facts", "workers"})
def worker_memory_grows(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
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
    further = f"each may reach {bytes_text(own)}, as the main process"
    if more < copies:
        further = f"an epoch of {life:.0f} batches adds {bytes_text(more)}"
    yield Cause(
        message=f"{loader.num_workers} workers copy or keep {bytes_text(growth)} more per step, "
        f"{bytes_text(seen.held)} so far; {further}",
        advice="Hold samples in arrays or tensors (numbers in one array, texts as bytes with offsets), not in lists "
        "and dicts of Python objects. Keep no cache in the data set.",
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
    return top.where if top else first_span(loader.dataset_span, loader.created_span) if loader else ()
