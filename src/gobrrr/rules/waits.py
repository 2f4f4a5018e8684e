"""What a data wait is made of: reading, transforming, collating, starting workers, one slow sample in many."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from statistics import mean, median
from typing import NamedTuple

from gobrrr.ledger.model import Ledger, LineGroup, WorkerGroup
from gobrrr.machine.model import Machine
from gobrrr.recording.facts import LoaderFacts, Span
from gobrrr.rules.lines import Functions, below, own_name

WAIT = 0.05
"""Share of the step from which a data wait is told (tb_plugin 5 %, XProf 5 %, gpuprof 15 %)."""
HALF = 0.5
"""A part names the wait where it is half of it (SageMaker's IOBottleneck takes 50 % of the time in I/O)."""
SATURATED = 0.8
"""Share of the effective cores from which waiting workers wait for a core, not for a disk."""
HARDLY_RUNS = 0.9
"""Share of time off the processor that is waiting even where strangers have the cores: they leave a fifth of one."""
SLOW = 3.0
"""Times the median from which a wait is an outlier (TraceML's step outliers: 3 x median)."""
FEW_WAITS = 10
CROWDED = 0.25
"""Share of the cores in the hands of others from which BRR905 doubts the run."""
CHEAP_ITEM = 50.0
"""Dispatches per sample under which fetching it is indexing and stacking, no transform: TensorDataset needs 4 us per
sample where one small op costs 1.2 us; a JPEG needs 800."""
COLLATE = (Functions(("torch.utils.data._utils.collate.",)),)


class Wait(NamedTuple):
    """The wait for the loader in a usual step. Shares are null where nobody looked."""

    loader: LoaderFacts
    ns: float
    collate_share: float | None
    idle_share: float | None
    """Part of the fetching in which its thread or process was off the processor."""
    item_ns: float | None
    """Fetching and collating one sample."""
    where: tuple[Span, ...]


def wait(ledger: Ledger, machine: Machine) -> Wait | None:
    """The wait of the loop's loader, None where there is none of 5 % of the step or no loader was seen."""
    loader = main_loader(ledger)
    ns = steady_wait(ledger)
    if loader is None or ledger.wall <= 0 or ns < WAIT * ledger.wall:
        return None
    if loader.num_workers:
        return _by_workers(ledger, machine, loader, ns)
    return _by_main(ledger, machine, loader, ns)


def cause(ledger: Ledger, machine: Machine) -> str | None:
    """The one code that names the usual wait best; None where there is no wait."""
    found = wait(ledger, machine)
    if found is None:
        return None
    cheap = found.item_ns is not None and found.item_ns < CHEAP_ITEM * machine.dispatch.median
    if found.loader.in_memory and cheap and found.loader.batch_size:
        return "BRR408"
    if found.idle_share is not None and found.idle_share >= HALF:
        return "BRR402" if found.loader.num_workers else "BRR405"
    if found.collate_share is not None and found.collate_share >= HALF:
        return "BRR403"
    return "BRR401"


def main_loader(ledger: Ledger) -> LoaderFacts | None:
    """The loader that handed out most batches."""
    return max(ledger.facts.loaders, key=lambda loader: loader.num_batches, default=None)


def micro_steps(ledger: Ledger) -> float:
    """Training forwards of one update."""
    return max([1.0, *(optimizer.micro_steps for optimizer in ledger.facts.optimizers)])


def batches_per_step(ledger: Ledger) -> float:
    """Batches that the loop's loader hands out per step: a program may go over one several times, or accumulate."""
    loader = main_loader(ledger)
    if loader is not None and loader.num_batches and ledger.step.count:
        return max(1.0, round(loader.num_batches / ledger.step.count))
    return micro_steps(ledger)


def rare_waits(ledger: Ledger) -> list[float]:
    """Waits far above the usual one that come now and then; workers in step make every w-th wait long, which is not."""
    waits = ledger.step.waits
    if len(waits) < FEW_WAITS:
        return []
    usual = median(waits)
    slow = [w for w in waits if w > SLOW * usual and w - usual > WAIT * ledger.wall]
    loader = main_loader(ledger)
    most = HALF / loader.num_workers if loader and loader.num_workers else 1 / SLOW
    return slow if len(slow) <= most * len(waits) else []


def steady_wait(ledger: Ledger) -> float:
    """ns per step without the rare ones. The mean where workers deliver in bursts, of which a median sees nothing."""
    usual = ledger.account("data_wait")
    rare = rare_waits(ledger)
    waits = [w for w in ledger.step.waits if w not in rare]
    return max(usual, mean(waits)) if len(waits) >= FEW_WAITS and not rare else usual


def tail(ledger: Ledger) -> tuple[float, float]:
    """(what rare waits add to the mean step, its upper limit): how many there are is a matter of chance, one over the
    square root of their number."""
    rare = rare_waits(ledger)
    if not rare:
        return 0.0, 0.0
    usual = median(ledger.step.waits)
    cost = sum(w - usual for w in rare) / len(ledger.step.waits)
    return cost, cost * (1 + 1 / sqrt(len(rare)))


def rest_varies(ledger: Ledger) -> float:
    """What outliers of the same steps add to them outside the wait: they are not the loader's."""
    step = ledger.step
    rest = [wall - waited for wall, waited in zip(step.walls, step.waits, strict=False)]
    return max(0.0, mean(rest) - median(rest)) if rest else 0.0


def start_cost(ledger: Ledger) -> float:
    """ns per step that starting workers anew in every epoch costs: the iterator and what its first batch is late."""
    loader = main_loader(ledger)
    if loader is None or not loader.num_workers or loader.persistent_workers or not loader.num_batches:
        return 0.0
    if len(loader.iter_ns) < 2:
        return 0.0  # one epoch: a cost of the run, not of the step
    usual = median(ledger.step.waits) if ledger.step.waits else 0.0
    late = sum(max(0.0, first - usual) for first in loader.first_wait_ns)
    return (sum(loader.iter_ns) + late) / loader.num_batches * batches_per_step(ledger)


def cores_busy(ledger: Ledger) -> float | None:
    """Cores that the program keeps busy. Loader workers that live on are in no account of this process's time."""
    load, in_workers = ledger.facts.process_load, cores_of_workers(ledger)
    return load + in_workers if load is not None else in_workers or None


def cores_of_workers(ledger: Ledger) -> float:
    """Cores that loader workers keep busy."""
    groups = _worker_groups(ledger, main_loader(ledger))
    cpu = sum(g.ns * g.cpu_share for g in groups if g.cpu_share is not None) * batches_per_step(ledger)
    return cpu / ledger.wall if ledger.wall else 0.0


def other_load(ledger: Ledger) -> float:
    """Cores that strangers keep busy: the program's own loader workers are other processes too."""
    return max(0.0, (ledger.facts.other_load or 0.0) - cores_of_workers(ledger))


def crowded(ledger: Ledger, machine: Machine) -> bool:
    """Strangers take so much of the cores that a thread off the processor may only be waiting its turn."""
    return other_load(ledger) > CROWDED * machine.logical_cores


def _worker_groups(ledger: Ledger, loader: LoaderFacts | None) -> list[WorkerGroup]:
    own = [group for group in ledger.workers if loader is not None and group.loader == loader.id]
    return own or list(ledger.workers)  # a recording may not know whose workers they are


def _by_workers(ledger: Ledger, machine: Machine, loader: LoaderFacts, ns: float) -> Wait:
    groups = _worker_groups(ledger, loader)
    groups = [group for group in groups if group.kind in ("getitem", "collate")]  # else it has nothing to do
    everything = sum(group.ns for group in groups)
    collate = _part((g.ns for g in groups if g.kind == "collate"), everything)
    fetching = [g for g in groups if g.kind == "getitem" and g.cpu_share is not None]
    idle = _part((g.ns * (1 - (g.cpu_share or 0.0)) for g in fetching), sum(g.ns for g in fetching))
    busy = cores_busy(ledger)
    if busy is not None and busy >= SATURATED * machine.effective_cores.median:
        idle = 0.0 if idle is not None else None
    if crowded(ledger, machine) and idle is not None and idle < HARDLY_RUNS:
        idle = None
    kind = "collate" if (collate or 0.0) >= HALF else "getitem"
    top = max((g for g in groups if g.kind == kind and g.where), key=lambda g: g.ns, default=None)
    item = everything / loader.batch_size if everything and loader.batch_size else None
    return Wait(loader, ns, collate, idle, item, top.where if top else _defined(loader, kind))


def _by_main(ledger: Ledger, machine: Machine, loader: LoaderFacts, ns: float) -> Wait:
    lines = [line for line in ledger.lines if line.phase == "data"]
    everything = sum(line.ns for line in lines)
    collated = [(_collating(line, loader), line) for line in lines]
    collate = _part((part for part, _ in collated), everything)
    idle = _part((line.ns for line in lines if line.waiting), everything)
    if crowded(ledger, machine) and _rest_waits(ledger):
        idle = None
    item = ns / batches_per_step(ledger) / loader.batch_size if loader.batch_size else None
    kind = "collate" if (collate or 0.0) >= HALF else "getitem"
    parts = collated if kind == "collate" else [(line.ns - part, line) for part, line in collated]
    top = max(parts, key=lambda pair: pair[0], default=None)
    return Wait(loader, ns, collate, idle, item, top[1].where if top and top[1].where else _defined(loader, kind))


def _rest_waits(ledger: Ledger) -> bool:
    """What is outside the loader is off the processor as well: the whole thread waits its turn."""
    rest = [line for line in ledger.lines if line.phase != "data"]
    return sum(line.ns for line in rest if line.waiting) >= HALF * sum(line.ns for line in rest)


def _part(some: Iterable[float], everything: float) -> float | None:
    return sum(some) / everything if everything > 0 else None


def _collating(line: LineGroup, loader: LoaderFacts) -> float:
    """What of a line of the loader is collating: all of it below the user's collate function, else torch's own."""
    span = loader.collate_span
    if span and any(at.file == span.file and own_name(at.function) == own_name(span.function) for at in line.where):
        return line.ns
    return below(line, COLLATE)[0]


def _defined(loader: LoaderFacts, kind: str) -> tuple[Span, ...]:
    """Where the loader's parts are defined, where no line was sampled."""
    return first_span(loader.collate_span if kind == "collate" else loader.dataset_span, loader.created_span)


def first_span(*spans: Span | None) -> tuple[Span, ...]:
    """The first place that is known, as a finding's `where`."""
    return next(((span,) for span in spans if span is not None), ())
