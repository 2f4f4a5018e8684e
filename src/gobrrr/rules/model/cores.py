"""Which processes have the cores (the step, its loader's workers, others), and which loader and how many batches are
the step's?"""

from __future__ import annotations

from gobrrr.ledger.model.ledger import Ledger, WorkerGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.machine.probe.system_probe import granted
from gobrrr.recording.model.facts import LoaderFacts, Span

COLD = 0.25
"""Share of the rest of a step that a long wait costs beside itself: caches are cold after it and threads asleep. The
planted programs whose loaders read or collate in the main process ran the rest 14 to 21 % longer than their twins."""
CROWDED = 0.25
"""Share of the cores in the hands of others from which BRR905 doubts the run."""
STARVED = 0.10
"""Share of the time that the program's threads wanted a core and had none, from which BRR905 doubts the run: as the
quartiles that make steps unsteady (proposed)."""


def micro_steps(ledger: Ledger) -> float:
    """Training forwards of one update."""
    return max([1.0, *(optimizer.micro_steps for optimizer in ledger.facts.optimizers)])


def batches_per_step(ledger: Ledger) -> float:
    """Batches that the loop's loader hands out per step: a program may go over one several times, or accumulate."""
    loader = ledger.facts.main_loader
    if loader is not None and loader.num_batches and ledger.step.count:
        return float(loader.per_step(ledger.step.count))
    return micro_steps(ledger)


def cores_busy(ledger: Ledger) -> float | None:
    """Cores that the program keeps busy. Loader workers that live on are in no account of this process's time."""
    load, in_workers = ledger.facts.process_load, cores_of_workers(ledger)
    return load + in_workers if load is not None else in_workers or None


def cores_of_workers(ledger: Ledger) -> float:
    """Cores that loader workers keep busy."""
    groups = worker_groups(ledger, ledger.facts.main_loader)
    cpu = sum(g.ns * g.cpu_share for g in groups if g.cpu_share is not None) * batches_per_step(ledger)
    return cpu / ledger.wall if ledger.wall else 0.0


def recovers(ledger: Ledger, machine: Machine, wait: float) -> float:
    """Nanoseconds of the rest of the step that go with a wait, at most, and never more than the wait itself."""
    return rest_recovers(ledger, machine, max(0.0, min(ledger.wall - wait, wait)))


def rest_recovers(ledger: Ledger, machine: Machine, rest: float) -> float:
    """Return the ns of `rest` that workers that fetch or cold caches cost, at most.

    Busy workers take up to half of the cores, and a parallel op waits for the thread that shares its core with one.
    Where a device does the rest, nothing: the host's caches and cores are not what it runs on.
    """
    if "device" in ledger.signals:
        return 0.0
    cores = machine.effective_cores.median or float(machine.logical_cores)
    wanted = min(float(ledger.threads), cores)
    left = cores - min(cores_of_workers(ledger), cores / 2)
    slowed = max(0.0, rest) * max(0.0, 1 - left / wanted) if wanted > 0 else 0.0
    return max(slowed, COLD * rest)


def other_load(ledger: Ledger) -> float:
    """Return the cores that other processes keep busy, less the program's own loader workers."""
    return max(0.0, (ledger.facts.other_load or 0.0) - cores_of_workers(ledger))


def crowded(ledger: Ledger, machine: Machine) -> bool:
    """Say whether other processes take so much of the cores that a thread off the processor may only be waiting its
    turn."""
    return other_load(ledger) > CROWDED * usable_cores(ledger, machine)


def usable_cores(ledger: Ledger, machine: Machine) -> int:
    """Cores that the program may use: its affinity as it stood, within the quota."""
    return granted(ledger.facts.settings.cores or machine.usable_cores or machine.logical_cores, machine.quota)


def left_by_others(ledger: Ledger, machine: Machine) -> float:
    """Return the cores that other processes left the program in this run, of those that it may use."""
    return max(0.0, usable_cores(ledger, machine) - other_load(ledger))


def free_cores(ledger: Ledger, machine: Machine) -> float:
    """Return the effective cores of the machine that other processes left: more threads or workers can run on these."""
    return min(machine.effective_cores.median, left_by_others(ledger, machine))


def starved(ledger: Ledger) -> float | None:
    """Return the share of the time that the program's threads wanted a core in which they got none: run-queue wait, and
    what the host took, which no run queue shows. None where neither is known."""
    facts = ledger.facts
    return without_core(facts.process_load, other_load(ledger), facts.waiting_load, facts.stolen_load)


def without_core(own: float | None, others: float, waiting: float | None, taken: float | None) -> float | None:
    """Return the same share as starved(), from the cores that the program and others keep busy, that its threads wait
    for and that the host took."""
    if own is None or (waiting is None and taken is None):
        return None
    machine_wide = own + others
    stolen = (taken or 0.0) * (own / machine_wide if machine_wide else 0.0)
    lost = (waiting or 0.0) + stolen
    return lost / (lost + own) if lost else 0.0


def worker_groups(ledger: Ledger, loader: LoaderFacts | None) -> list[WorkerGroup]:
    """Return the work of a loader's workers."""
    own = [group for group in ledger.workers if loader is not None and group.loader == loader.id]
    return own or list(ledger.workers)  # a recording may not know whose workers they are


def making(ledger: Ledger, loader: LoaderFacts | None) -> list[WorkerGroup]:
    """Return the work of a loader's workers on samples and batches, without handing them over."""
    return [group for group in worker_groups(ledger, loader) if group.kind in ("getitem", "collate")]


def making_ns(ledger: Ledger, loader: LoaderFacts | None) -> tuple[float, float]:
    """Return (all, on a processor): ns per step that all workers make batches; on one where nobody looked."""
    groups, batches = making(ledger, loader), batches_per_step(ledger)
    cpu = sum(group.ns * (1.0 if group.cpu_share is None else group.cpu_share) for group in groups)
    return sum(group.ns for group in groups) * batches, cpu * batches


def made_at(loader: LoaderFacts) -> tuple[Span, ...]:
    """The program's own part that makes batches, the innermost that there is: collate function, data set, loader."""
    return first_span(loader.collate_span, loader.dataset_span, loader.created_span)


def first_span(*spans: Span | None) -> tuple[Span, ...]:
    """The first place that is known, as a finding's `where`."""
    return next(((span,) for span in spans if span is not None), ())
