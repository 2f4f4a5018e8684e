"""BRR901 and BRR902: are there enough steps, and are they alike enough, to say anything of one?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, ratio, time
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.validity.measurement import HARDLY, MOSTLY, children_work, doubt
from gobrrr.units import duration, ratio_to, share

UNTRUSTED_STEPS, FEW_STEPS = 3, 20
"""Below three there is no spread; TraceML calls nothing critical below 20 steps."""
START_UP = 15e9
"""ns of CPU time that imports, and our own start and ends of windows, may take. Imports took 2 to 6.6 s on four cores
that others used (measured)."""
UNSTEADY, VERY_UNSTEADY = 0.10, 0.25
"""Quartile range over median at which torch.utils.benchmark warns, and warns of gross variation."""
TOLD = 0.1
"""Share of a recording from which a device's start-up is told: a finding from a tenth on."""
HIDES_NS = 50e6
"""A step mostly of start-up, and that longer, is no step: contexts take 0.1 s and more. A module's load of some ms in
one launch leaves the others to judge by (proposed; MI250's toy step: 6.5 ms)."""
GROWN = 1.5
"""Median plain step over those around the profiled ones from which these are said to be others (proposed)."""


@rule("BRR901", "host")
def too_few_steps(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Fewer than three plain steps tell nothing, fewer than twenty little, steps that are hardly any of the program
    nothing of it; and a device's start-up is no step."""
    yield from _hardly_the_program(ledger)
    steps = ledger.step.plain_count
    start_up = ledger.device.start_up_ns if ledger.device else 0.0
    hides = start_up > MOSTLY * ledger.wall and start_up > HIDES_NS
    if start_up > TOLD * ledger.wall:
        yield _start_up(ledger, start_up, hides)
    if hides:
        return
    if "unmarked" in ledger.signals:
        call = 'nvtxRangePush("step 7")' if "foreign" in ledger.signals else 'with torch.cuda.nvtx.range(f"step {i}"):'
        range_of_nsys = f"Put each step into an NVTX range that counts it ({call})"
        yield doubt(
            "note",
            f"the file does not say where a step ends: all of it, {duration(ledger.wall)}, counts as one",
            f"{range_of_nsys if 'nsys' in ledger.signals else 'Call profiler.step() after each step'}, so that figures "
            "are those of a step and its spread is known.",
        )  # fmt: skip
    if steps >= FEW_STEPS or "offline" in ledger.signals:
        return  # a file has the steps that it has: its spread is told by BRR902
    yield doubt(
        "critical" if steps < UNTRUSTED_STEPS else "note",
        f"{f'only {steps} steady steps were' if steps else 'no steady step was'} timed without the profiler",
        "Let the program run for more steps (more epochs, more data, a larger --steps).",
        {"plain_steps": count(steps), "all_steps": count(ledger.step.count), "warmup": count(ledger.step.warmup_count)},
    )  # fmt: skip


def _start_up(ledger: Ledger, ns: float, hides: bool) -> Cause:
    """The first steps of a process make contexts and load modules, which no later one does."""
    start = "cudaProfilerStart()" if "foreign" in ledger.signals else "torch.cuda.profiler.start()"
    nsys = f"nsys profile --capture-range=cudaProfilerApi and {start}"
    torch = "torch.profiler.schedule(wait=..., warmup=...) and profiler.step()"
    return doubt(
        "critical" if hides else "warning",
        f"{duration(ns)} of {duration(ledger.wall)} is the device's start-up: calls that make contexts or load modules",
        f"Record steps after the first ones: {nsys if 'nsys' in ledger.signals else torch}.",
        {"start_up": time(ns), "all_steps": count(ledger.step.count)},
    )  # fmt: skip


def _hardly_the_program(ledger: Ledger) -> Iterator[Cause]:
    step, load = ledger.step, ledger.facts.process_load
    own = (step.process_cpu_ns or 0.0) - START_UP
    if step.seen_ns <= 0 or step.seen_ns * max(1.0, load or 1.0) >= HARDLY * own:
        return
    if children_work(ledger):
        return  # BRR904 says where it lies
    spent = step.process_cpu_ns or 0.0
    yield doubt(
        "critical",
        f"the steps seen take {duration(step.seen_ns)}, the program {duration(spent)} of CPU time: what costs lies "
        "elsewhere",
        "Mark what takes the time: `with gobrrr.watch(): ...` around it, or `for part in gobrrr.steps(parts): ...`.",
        {"seen": time(step.seen_ns), "process_cpu": time(spent)},
    )  # fmt: skip


@rule("BRR902", "host", needs={"plain"})
def unsteady_steps(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Steps that differ, or get slower or faster while they are watched."""
    step = ledger.step
    yield from _grown(ledger)
    worst = max(step.quartile_spread, abs(step.drift))
    if step.plain_count < UNTRUSTED_STEPS or worst <= UNSTEADY or ledger.wall <= 0:
        return
    width = max(0.0, step.high_ns - step.low_ns) / ledger.wall
    if (rest := _spread_without_waits(ledger)) is not None:
        yield doubt(
            "note",
            f"the steps differ by their waits for data alone: without those the middle half spans {share(rest)} of "
            "the median",
            "Nothing: that the loader delivers in bursts is its own finding.",
            {"quartile_spread": ratio(step.quartile_spread), "without_waits": ratio(rest), "interval": ratio(width)},
        )  # fmt: skip
        return
    drifts = abs(step.drift) > step.quartile_spread
    by = ratio_to(step.drift if drifts else step.quartile_spread, "the median")
    what = f"drift by {by}" if drifts else f"differ: the middle half spans {by}"
    yield doubt(
        "critical" if width > 1.0 else "warning" if worst > VERY_UNSTEADY else "note",
        f"the steps {what}, which is known to {ratio_to(width / 2, 'it')} either way",
        "Watch more steps, on a machine that does nothing else, with steps of equal size.",
        {"quartile_spread": ratio(step.quartile_spread), "drift": ratio(step.drift), "interval": ratio(width)},
    )  # fmt: skip


def _spread_without_waits(ledger: Ledger) -> float | None:
    """Quartile range over median of what steps are beside their waits; None where that differs too, or nobody waits."""
    step = ledger.step
    rests = [wall - waited for wall, waited in zip(step.walls, step.waits, strict=False)]
    if len(rests) < UNTRUSTED_STEPS or not any(step.waits) or (middle := median(rests)) <= 0:
        return None
    lower, _, upper = quantiles(rests, n=4, method="inclusive")
    spread = (upper - lower) / middle
    return spread if spread <= UNSTEADY and spread < UNSTEADY * step.quartile_spread else None


def _grown(ledger: Ledger) -> Iterator[Cause]:
    """Steps that were profiled were shorter than most, as were those around them."""
    step = ledger.step
    if not step.profiled_count or not 0 < step.beside_ns * GROWN < ledger.wall:
        return
    yield doubt(
        "warning",
        f"the profiled steps were shorter than most: those around them took {duration(step.beside_ns)}, the median "
        f"{duration(ledger.wall)}; shares are those of short steps",
        "Watch the program where its steps are as long as they get (gobrrr.steps around that part of the loop).",
        {"around": time(step.beside_ns), "plain_step": time(ledger.wall)},
    )  # fmt: skip
