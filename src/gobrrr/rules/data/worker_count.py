"""BRR404 to BRR406, BRR412: how many workers load, how often they are started, and whether they share the samples."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.data.library_calls import with_formats
from gobrrr.rules.data.loader_advice import (
    WORKERS,
    Loading,
    is_of_few,
    keeping,
    most,
    num_workers,
    quantities,
    told,
)
from gobrrr.rules.data.wait_stages import SATURATED, Wait, cause, fetches, refill_cost, start_cost, wait
from gobrrr.rules.model.cores import (
    batches_per_step,
    cores_busy,
    cores_of_workers,
    first_span,
    other_load,
    rest_recovers,
)
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, fitting, rule, whole
from gobrrr.rules.model.lines import WHOLE, loader_made, told_path
from gobrrr.units import duration, share

CONTENTION = 0.28
"""Throughput lost by 8 workers on 1 effective core against 1 worker: 94 of 130 samples per second."""
SURELY_IDLE = 0.5
"""Cores that must be idle for a saving that is promised at least."""
ONE_BY_ONE = "one sample after the other"
UNSEEN_REFILL = 0.85
"""Share of the cost of starting workers that comes back where nobody saw how late first batches stay."""
NEAR = 0.15
"""How far the share of batches that equal the one before may be from what workers give that all have all (proposed)."""
CROWDED = 2.0
"""Workers per effective core from which they are too many."""


@rule("BRR404", "data", needs={"plain", "facts"}, remedies=("persistent_workers",))
def workers_start_every_epoch(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Workers are started anew in every epoch, and epochs are short."""
    loader = ledger.facts.main_loader
    cost = start_cost(ledger)
    left = refill_cost(ledger)
    saved = UNSEEN_REFILL * cost if left is None else cost - left
    if loader is None or not worth_telling(ledger, saved):
        return
    epochs = loader.num_epochs
    # Where there are too many workers, BRR406 has the part of those that should not be there.
    part = min(1.0, CROWDED * machine.effective_cores.median / loader.num_workers)
    # Starts are in rare steps, not in the usual one; new workers fetch ahead on the cores of those after them.
    ceiling = 1.1 * cost + rest_recovers(ledger, machine, min(ledger.wall, cost))
    yield Cause(
        saving=(part * min(0.4 * cost, saved), part * saved, ceiling),
        message=f"{loader.num_workers} workers start anew in each of {epochs} epochs of "
        f"{loader.num_batches / epochs:.0f} batches: {duration(cost)} per step "
        f"({share(cost / ledger.wall)} of a usual one)",
        advice="DataLoader(..., persistent_workers=True).",
        where=loader_made(ledger, loader),
        evidence={
            "start_per_step": time(cost),
            "start_per_epoch": time(cost * loader.num_batches / batches_per_step(ledger) / epochs),
            "epochs": count(epochs),
            "num_workers": count(loader.num_workers),
        },
        confidence="measured",
        rare=True,
    )


UNSEEN_GAIN, UNSEEN_WORKERS = 0.6, 4
"""Share of a wait that workers bring back where nobody looked into it, and their number. Kineto's ResNet-50 pair on a
V100: of 59.3 ms, four workers brought back 36.5."""


@rule("BRR405", "data", needs={"plain", "facts"}, remedies=("one_worker", "loader_workers", "computed_once"))
def too_few_workers(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Samples are read one after the other, or computed while cores stand idle."""
    found, why = wait(ledger, machine), cause(ledger, machine)
    if found is None or why not in ("BRR401", "BRR403", "BRR405"):
        return
    if "offline" in ledger.signals:
        yield from _behind(ledger, found) if found.loader.num_workers else _unseen(ledger, machine, found)
        return
    loading = Loading(ledger, machine, found)
    # Workers that have a shard each; as many as there should be shards for, where those bring nothing.
    enough = loading.advised > loading.workers and worth_telling(ledger, loading.gain(loading.advised).expected)
    workers = loading.advised if enough else loading.wanted
    gain = loading.gain(workers)
    if workers <= loading.workers or not worth_telling(ledger, gain.expected):
        return
    idle = _idle_cores(ledger, found, loading.cores.median)
    kept = keeping(ledger, machine, loading, found)
    sure = (why == "BRR405" or idle >= SURELY_IDLE) and workers <= loading.advised
    while_idle = f"while {idle:.1f} {'cores stand' if idle >= 1 else 'of a core stands'} idle"
    told_of = loading.cause(
        gain.low if sure else 0.0,
        gain.expected,
        f" from {found.loader.num_workers} workers, {ONE_BY_ONE if why == 'BRR405' else while_idle}",
        *_path(found),
        advice=f"DataLoader(..., num_workers={workers}, persistent_workers=True).",
        where=loader_made(ledger, found.loader),
        before={"free_cores": count(loading.cores.median), "idle_cores": count(idle)},
        more=kept.evidence,
        vain=kept.vain,
    )
    yield with_formats("BRR405", told_of, ledger, found.loader, loading.wanted)


def _unseen(ledger: Ledger, machine: Machine, found: Wait) -> Iterator[Cause]:
    """A trace of a loop that loads by itself: what loading is made of and which cores are idle it does not tell. Reads
    overlap with the step and with each other."""
    rest = max(0.0, ledger.wall - found.ns)
    gain = found.ns - max(0.0, found.ns / UNSEEN_WORKERS - rest)
    if not worth_telling(ledger, UNSEEN_GAIN * gain):
        return
    yield Cause(
        saving=(0.4 * gain, UNSEEN_GAIN * gain, most(found, ledger, machine)),
        rare=is_of_few(found, ledger),
        message=fitting(f"{told(found, ledger)} from {found.loader.num_workers} workers, {ONE_BY_ONE}", *_path(found)),
        advice=f"DataLoader(..., num_workers={UNSEEN_WORKERS}, persistent_workers=True).",
        where=loader_made(ledger, found.loader) or found.where,
        evidence=quantities(found, ledger),
    )


def _behind(ledger: Ledger, found: Wait) -> Iterator[Cause]:
    """A trace of workers that are too slow: what they deliver, what the loop needs, how many that takes. They work in
    parallel, so that w of them bring w / (w + x) of what w + x bring, where cores and disk allow."""
    asked = len(fetches(ledger))
    every = len(ledger.step.waits) / asked if asked else 1.0  # steps per batch
    step = every * whole(ledger)
    needs = step - every * found.ns
    if needs <= 0 or not worth_telling(ledger, UNSEEN_GAIN * found.ns):
        return
    workers = num_workers(found, ledger)
    enough = ceil(workers * step / needs) if workers else None
    yield Cause(
        saving=(0.0, UNSEEN_GAIN * found.ns, found.ns),
        message=fitting(
            f"{told(found, ledger)}: a batch comes every {duration(step)}, needed every {duration(needs)}",
            f"; it recurs every {workers} steps" if workers else "",
            *_path(found),
        ),
        advice=f"DataLoader(..., num_workers={enough}, persistent_workers=True), if as many cores are idle."
        if enough
        else f"{step / needs:.1f} times as many workers, if as many cores are idle; else a cheaper transform.",
        where=found.where,
        evidence=quantities(found, ledger)
        | {"delivers": time(step), "needs": time(needs)}
        | ({"workers_needed": count(enough)} if enough else {}),
        confidence="derived",
        rare=found.ns > ledger.account("data_wait"),
    )


def _path(found: Wait) -> tuple[str, ...]:
    """Say how much of the wait lies under the line that is given, and in which library functions."""
    if found.here_ns is None or not found.where:
        return ()
    part = f"; {duration(found.here_ns)} of it under this line" if found.here_ns < WHOLE * found.ns else ""
    return part, told_path(found.hot, found.here_ns)


def _idle_cores(ledger: Ledger, found: Wait, cores: float) -> float:
    """Effective cores that the step leaves idle; without workers, while it does not wait (the wait is one core's)."""
    busy = cores_busy(ledger)
    if busy is None:
        return max(0.0, cores - ledger.threads)
    if found.loader.num_workers:
        return max(0.0, cores - busy)
    compute = ledger.wall - found.ns
    waiting = found.ns * (1.0 - (found.idle_share or 0.0))
    return max(0.0, cores - max(0.0, busy * ledger.wall - waiting) / compute) if compute > 0 else cores


@rule("BRR406", "data", needs={"plain", "facts"}, remedies=("one_worker",))
def too_many_workers(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Workers that only take the cores from each other and from the step."""
    loader, busy = ledger.facts.main_loader, cores_busy(ledger)
    cores = machine.effective_cores.median
    if loader is None or busy is None or cores <= 0 or loader.num_workers <= CROWDED * cores:
        return
    if busy < SATURATED * cores and busy + other_load(ledger) < SATURATED * machine.logical_cores:
        return
    crowd = loader.num_workers / cores
    start = start_cost(ledger) * (1 - CROWDED / crowd)
    # A crowd delivers more slowly, which costs where the step waits for it: a queue that is full costs nothing.
    expected = min(CONTENTION * min(1.0, (crowd - 1) / 7) * ledger.wall, ledger.account("data_wait")) + start
    if not worth_telling(ledger, expected):
        return
    enough = max(1, round(cores))
    yield Cause(
        saving=(0.0, expected, max(expected, _taken(ledger) + ledger.account("data_wait") + start)),
        message=f"{loader.num_workers} workers and {ledger.threads} threads share {cores:.1f} effective cores and "
        f"keep {busy:.1f} busy with the step: they take them from it",
        advice=f"DataLoader(..., num_workers={enough}).",
        where=loader_made(ledger, loader),
        evidence={
            "num_workers": count(loader.num_workers),
            WORKERS: count(enough),
            "threads": count(ledger.threads),
            "effective_cores": count(cores),
            "cores_busy": ratio(busy),
            "start_per_step": time(start),
        },
        confidence="inferred",
        rare=True,
    )


def _taken(ledger: Ledger) -> float:
    """ns of a step that workers take from its threads, at most: as long as their code runs, and as long as threads that
    were ready waited for a core. Where neither is known, what ops take above their floors."""
    ran, waited = cores_of_workers(ledger), ledger.facts.waiting_load
    known = [load for load in (ran or None, waited) if load is not None]
    rest = max(0.0, ledger.wall - ledger.account("data_wait"))
    return min(rest, *(load * ledger.wall for load in known)) if known else ledger.account("inefficiency")


@rule("BRR412", "data", needs={"plain", "facts"})
def workers_give_the_same(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Each worker of a stream gives all of its samples: an epoch has them as often as there are workers."""
    loader = ledger.facts.main_loader
    if loader is None or not loader.stream or loader.num_workers < 2 or loader.num_compared < 2 * loader.num_workers:
        return
    again = 1 - 1 / loader.num_workers
    if abs(loader.num_equal / loader.num_compared - again) > NEAR:
        return
    yield Cause(
        saving=(0.9 * again * ledger.wall, again * ledger.wall, ledger.wall),
        message=f"each of {loader.num_workers} workers gives all samples of {loader.dataset}: every batch comes "
        f"{loader.num_workers} times, and an epoch takes as many times as long",
        advice="Give each worker its part in __iter__: torch.utils.data.get_worker_info() has its id and their number.",
        where=first_span(loader.dataset_span),
        evidence={
            "num_workers": count(loader.num_workers),
            "equal_batches": ratio(loader.num_equal / loader.num_compared),
        },
        confidence="measured",
    )
