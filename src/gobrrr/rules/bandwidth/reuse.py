"""BRR202 and BRR203: passes over memory that reusing it, or working in chunks, would spare."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.compute.unused_work import idle_graph_pages
from gobrrr.rules.model.evidence import count, size, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import (
    FLOATS,
    MODEL,
    costliest_line,
    factors,
    float_dtype,
    grouped,
    holds,
    inside,
    kind,
    result_bytes,
    total,
)
from gobrrr.units import PAGE, duration, share
from gobrrr.units import size as bytes_text
from gobrrr.words import OPTIMIZER

# glibc never serves a request of this size from memory it already has (DEFAULT_MMAP_THRESHOLD_MAX on 64 bits).
ALWAYS_FRESH = 32 << 20
FADES = 2.0
"""Ratio of page faults before the profiled window to those after it, from which they count as gone."""
COMES_BACK, MOST_COMES_BACK = 1.4, 2.5
"""Saving of keeping fresh pages, expected and at most, as a multiple of the cost of touching them: giving them back
costs too, and they are not in the caches. Seven programs of the zoo with malloc's thresholds: 0.6 to 2.2, median
1.45."""
LARGE_VOCABULARY = 4096
"""Classes from which logits are judged."""
LARGE_LOGITS = 16 << 20
"""Bytes from which they are: smaller ones stay in the last-level cache (BRR203.md)."""
# What logits, log-probabilities and their gradient must hold together before their bytes alone are worth a word.
TELLING_BYTES = 256 << 20


@rule("BRR202", "bandwidth", needs={"ops", "facts"}, remedies=("malloc_thresholds", "preloaded_allocator"))
def page_faults_of_fresh_allocations(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Large results whose memory the system hands out page by page in every step, and takes back."""
    faults = ledger.facts.minor_faults_per_step or 0.0
    # Memory that grows is touched for the first time too, and no allocator setting spares that: BRR601.
    faults -= max(0.0, ledger.facts.rss_growth_per_step or 0.0) / PAGE
    faults -= idle_graph_pages(ledger)  # BRR107 has them
    cost = max(0.0, faults) * machine.fresh_page.median
    spare = sum(max(0.0, op.ns - op.floor_ns - op.dispatch_ns) for op in ledger.ops)
    large = [op for op in ledger.ops if result_bytes(op) >= ALWAYS_FRESH and kind(op) not in ("view", None)]
    # A result of 32 MiB is touched as it is written, whoever keeps its pages (0.8 of the cost came back); small ones
    # are given back and fetched again, for what lies on top of the heap comes and goes.
    expected = min((0.8 if large else COMES_BACK) * cost, 0.9 * spare)
    most = faults * machine.fresh_page.high * 1.3 if large else MOST_COMES_BACK * cost
    if not worth_telling(ledger, expected):
        yield from _ended_by_watching(ledger, machine)
        return
    yield Cause(
        saving=(0.4 * expected, expected, max(expected, most)),
        message=f"{faults:,.0f} page faults per step cost {duration(cost)} ({share(cost / ledger.wall)} of the step): "
        + (f"results of {bytes_text(ALWAYS_FRESH)} and more get fresh memory every time" if large else "memory is "
           "given back and fetched again"),
        advice="Let malloc keep large blocks (MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ in the environment), "
        "or write into existing tensors with out= or in place.",
        where=costliest_line(large or [op for op in ledger.ops if op.ns > op.floor_ns + op.dispatch_ns]),
        evidence={
            "minor_faults": count(faults),
            "one_fault": time(machine.fresh_page.median),
            "largest_result": size(max((result_bytes(op) for op in large), default=0)),
        },
    )  # fmt: skip


def _ended_by_watching(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Faults that came until the profiled window. The profiler's last small block on top of the heap keeps malloc from
    giving back what lies below it: a GPT-2 of the zoo had 21,000 faults in each of 400 steps, and none behind a window,
    with 13 % less CPU time. Others settle by themselves: the low is 0."""
    before, after = ledger.facts.minor_faults_before, ledger.facts.minor_faults_after
    if before is None or after is None:
        return
    cost = min((before - after) * machine.fresh_page.median, ledger.wall)
    if before < FADES * after or not worth_telling(ledger, cost):
        return
    yield Cause(
        saving=(0.0, min(COMES_BACK * cost, ledger.wall), min(MOST_COMES_BACK * cost, ledger.wall)),
        message=f"{before:,.0f} page faults per step cost {duration(cost)} before the profiled window, {after:,.0f} "
        "after it: without the profiler steps may be longer",
        advice="See whether the program is faster with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ in its "
        "environment: gobrrr tune tries it.",
        where=(),
        evidence={
            "minor_faults_before": count(before),
            "minor_faults": count(after),
            "one_fault": time(machine.fresh_page.median),
        },
        of=(),
        confidence="inferred",
        between=True,
        level="note",
    )


@rule("BRR203", "bandwidth", needs={"ops", "shapes"}, remedies=("chunked_loss", "compile"), on_device=True)
def large_logits(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Logits over a large vocabulary, held whole, and again as log-probabilities and as gradient."""
    losses = ("aten::nll_loss", "aten::cross_entropy", "aten::gather")
    feeds_a_loss = any(op.name.startswith(losses) for op in ledger.ops)
    large = [op for op in ledger.named("aten::_log_softmax") if feeds_a_loss and _logits(op) >= LARGE_LOGITS]
    for same in grouped(large, lambda op: prod(op.shapes[0])).values():  # by however many ways the loss is reached
        yield from _judge_logits(ledger, machine, max(same, key=lambda op: op.ns), sum(op.calls for op in same))


def _logits(softmax: OpGroup) -> int:
    """Return the bytes of the logits over a large vocabulary, 0 where it has none."""
    shape = softmax.shapes[0] if softmax.shapes else ()
    is_large = len(shape) >= 2 and shape[-1] >= LARGE_VOCABULARY
    return prod(shape) * FLOATS.get(float_dtype(softmax) or "float", 4) if is_large else 0


def _judge_logits(ledger: Ledger, machine: Machine, softmax: OpGroup, calls: float) -> Iterator[Cause]:
    elements, held = prod(softmax.shapes[0]), _logits(softmax)
    training = any(op.phase == "backward" for op in ledger.ops)
    copies = 3 if training else 2  # logits, log-probabilities, and their gradient
    ops = [op for op in ledger.ops if op.phase in MODEL and holds(op, elements) and not inside(op, OPTIMIZER)]
    passes = [op for op in ops if factors(op) is None]
    products = total(ops) - total(passes)
    head = f", the head's products {duration(products)}" if products > 0 else ""
    spare = sum(max(0.0, op.ns - op.floor_ns) for op in ops)
    fresh = (copies + training) * held / PAGE * machine.fresh_page.median * max(calls, 1.0)
    # Chunks whose logits stay in the cache spare the pages and most of the traffic; the products stay.
    expected = min(0.7 * fresh, 0.5 * total(passes) + 0.5 * spare)
    if copies * held < TELLING_BYTES and not worth_telling(ledger, expected):
        return
    yield Cause(
        saving=(0.0, expected, total(ops)),  # where the loss uses few rows, most of the products go too
        message=f"Logits over {softmax.shapes[0][-1]:,} classes take {bytes_text(held)}, {copies} times over; passes "
        f"over them take {duration(total(passes))} per step{head}",
        advice="Compute head and loss in chunks of rows, or only for the rows that the loss uses.",
        where=softmax.where,
        evidence={"logits": size(held), "passes": time(total(passes)), "head_products": time(products)},
        cost_bytes=copies * held,
    )
