"""How long does a step wait for its loader: usually, for which stage of it; and how much do rare waits add?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import sqrt
from statistics import mean, median
from typing import NamedTuple

from gobrrr.ledger.host.stacks import RECEIVING, SAMPLING, SENDING
from gobrrr.ledger.loading.loader_model import HANDOVER_NS
from gobrrr.ledger.model.ledger import Ledger, LineGroup, WorkerGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import LoaderFacts, Span
from gobrrr.rules.model.cores import batches_per_step, cores_busy, crowded, first_span, making, making_ns, worker_groups
from gobrrr.rules.model.finding import whole
from gobrrr.rules.model.lines import Functions, below, in_function

WAIT = 0.05
"""Share of the step from which a data wait is told (tb_plugin 5 %, XProf 5 %, gpuprof 15 %)."""
SLOW = 3.0
"""Multiple of the median from which a wait is an outlier (TraceML's step outliers: 3 x median)."""
FEW_WAITS = 10
"""Waits from which a rare one is told from the usual (proposed: fewer hardly have a median and outliers beside it; how
often steady loaders are called rare at each number would settle it)."""
UNEVEN, ALIKE = 0.5, 0.2
"""Shares of the mean: single waits differ by more, sums of a round's by less (proposed)."""
RECURS = 3
"""Long waits, each as many steps after the last, that are no chance (proposed): of ten steps with three long ones 1 in
20 orders has them so."""


def rare_waits(ledger: Ledger, machine: Machine) -> list[float]:
    """Waits far above the usual one that come now and then; workers in step make every w-th wait long, which is not.

    On a busy machine any wait may be three times another: there the whole step must be an outlier.
    """
    waits = fetches(ledger)
    if len(waits) < FEW_WAITS or _every_round(ledger):
        return []
    usual = median(waits)
    least = (SLOW - 1) * ledger.wall if crowded(ledger, machine) else WAIT * ledger.wall
    slow = [w for w in waits if w > SLOW * usual and w - usual > least]
    loader = ledger.facts.main_loader
    known = loader is not None and "offline" not in ledger.signals  # a trace does not say how many workers there are
    most = 1 / (2 * loader.num_workers) if loader and known and loader.num_workers else 1 / SLOW
    return slow if len(slow) <= most * len(waits) else []


def fetches(ledger: Ledger) -> list[float]:
    """The waits of the steps that asked for a batch: of several updates per batch only one does."""
    return [wait for wait in ledger.step.waits if wait > 0]


def period(waits: Sequence[float]) -> int | None:
    """Every how many steps a long wait recurs, always after as many, or waits add up to the same: workers in step, too
    slow for the loop. Null where none does, or long waits were seen fewer than three times."""
    least = SLOW * median(waits) if waits else 0.0
    most = max(waits, default=0.0)
    at = [i for i, wait in enumerate(waits) if wait > max(least, 0.5 * most)]
    apart = {b - a for a, b in pairwise(at)}
    found = apart.pop() if len(at) >= RECURS and len(apart) == 1 else 0
    throughout = found > 1 and at[0] < found and len(waits) - at[-1] <= found
    return found if throughout else _round_of(waits)


def _round_of(waits: Sequence[float]) -> int | None:
    """Steps whose waits always add up to the same though they differ: each worker hands over one batch meanwhile. The
    first so many were fetched before the loop."""
    for steps in range(2, len(waits) // (RECURS + 1) + 1):
        later = waits[steps:]
        sums = [sum(later[i : i + steps]) for i in range(len(later) - steps + 1)]
        uneven = max(later) - min(later) > UNEVEN * mean(later)
        if uneven and max(sums) - min(sums) <= ALIKE * mean(sums):
            return steps
    return None


def _every_round(ledger: Ledger) -> bool:
    """The loop waits once in every round of its workers. A trace does not say how many there are."""
    loader, found = ledger.facts.main_loader, period(ledger.step.waits)
    if found is None or loader is None or not loader.num_workers:
        return False
    return "offline" in ledger.signals or found == loader.num_workers


def steady_wait(ledger: Ledger, machine: Machine) -> float:
    """ns per step without the rare ones. The mean where workers deliver in bursts, of which a median sees nothing."""
    usual = ledger.account("data_wait")
    if ledger.device is not None:  # of the mean step already, and only while the device idles
        rare = tail(ledger, machine)[0] * ledger.wall / whole(ledger)
        return max(0.0, usual - rare)
    waits, asked = ledger.step.waits, fetches(ledger)
    if rare_waits(ledger, machine):
        return max(usual, median(asked) * len(asked) / len(waits))
    return max(usual, mean(waits)) if len(waits) >= FEW_WAITS else usual


def tail(ledger: Ledger, machine: Machine) -> tuple[float, float]:
    """(what rare waits add to the mean step, its upper limit): how many there are is a matter of chance, one over the
    square root of their number."""
    rare = rare_waits(ledger, machine)
    if not rare:
        return 0.0, 0.0
    usual = median(fetches(ledger))
    cost = sum(w - usual for w in rare) / len(ledger.step.waits)
    return cost, cost * (1 + 1 / sqrt(len(rare)))


def rest_varies(ledger: Ledger) -> float:
    """Return the ns that outliers add to the mean step outside the wait: they are not the loader's."""
    rest = _rests(ledger)
    return max(0.0, mean(rest) - median(rest)) if rest else 0.0


def _rests(ledger: Ledger) -> list[float]:
    """ns of each step beside its wait."""
    return [wall - waited for wall, waited in zip(ledger.step.walls, ledger.step.waits, strict=False)]


def start_cost(ledger: Ledger) -> float:
    """ns per step that starting workers anew in every epoch costs: the iterator, what its first batch is late and that
    batch's step is long, and the last request, in which they are stopped."""
    loader = ledger.facts.main_loader
    if loader is None or not loader.num_workers or loader.persistent_workers or not loader.num_batches:
        return 0.0
    if len(loader.iter_ns) < 2:
        return 0.0  # one epoch: a cost of the run, not of the step
    rests = _rests(ledger)
    rest = median(rests) if rests else 0.0
    slow = sum(max(0.0, first - rest) for first in loader.first_step_ns) if rest else 0.0
    epochs, spent = 1 + loader.unseen_epochs / len(loader.iter_ns), sum(loader.iter_ns) + _late(ledger, loader)
    return epochs * (spent + slow + sum(loader.end_wait_ns)) / loader.num_batches * batches_per_step(ledger)


def epoch_starts(ledger: Ledger) -> float:
    """ns per step by which iterators and the first batches of epochs are later than others; 0 of a single epoch."""
    loader = ledger.facts.main_loader
    if loader is None or not loader.num_batches or len(loader.first_wait_ns) < 2:
        return 0.0
    epochs = 1 + loader.unseen_epochs / len(loader.first_wait_ns)
    return epochs * (sum(loader.iter_ns) + _late(ledger, loader)) / loader.num_batches * batches_per_step(ledger)


def _late(ledger: Ledger, loader: LoaderFacts) -> float:
    """ns by which the first batches of epochs are later than others, together."""
    return sum(max(0.0, first - _usual_wait(ledger)) for first in loader.first_wait_ns)


def _usual_wait(ledger: Ledger) -> float:
    return median(ledger.step.waits) if ledger.step.waits else 0.0


def refill_cost(ledger: Ledger) -> float | None:
    """ns per step of start_cost that stays with workers that stay: they load the first batch of an epoch when the epoch
    begins. Null where nobody saw how long a batch takes them."""
    loader = ledger.facts.main_loader
    groups = making(ledger, loader)
    if loader is None or not groups or not loader.num_batches:
        return None
    late = max(0.0, sum(group.ns for group in groups) + HANDOVER_NS - _usual_wait(ledger))
    return min(start_cost(ledger), loader.num_epochs * late / loader.num_batches * batches_per_step(ledger))


HALF = 0.5
"""A part names the wait where it is half of it (SageMaker's IOBottleneck takes 50 % of the time in I/O)."""
SATURATED = 0.8
"""Share of the effective cores from which waiting workers wait for a core, not for a disk."""
HARDLY_RUNS = 0.9
"""Share of time off the processor that is waiting even where other processes have the cores: they leave a fifth of
one."""
CHEAP_ITEM = 50.0
"""Dispatches per sample under which fetching it is indexing and stacking, no transform: TensorDataset needs 4 us per
sample where one small op costs 1.2 us; a JPEG needs 800."""
DEAR = 2.0
"""Multiple of the usual hand-over from which one is dear: those of small pictures took 1.2 to 2.1 ms where 1.5 is
usual."""
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
    hot: tuple[tuple[str, float], ...] = ()
    """A trace's library functions below that line, ns per step, as a Cluster has them."""
    here_ns: float | None = None
    """Part of it under that line; null where nobody looked."""
    sampling_ns: float = 0.0
    """The main process draws the indices of the batches to come; what epochs begin with counts, rare as it is."""
    receiving_ns: float = 0.0
    """The main process takes in batches that workers have ready."""
    sending_ns: float | None = None
    """CPU time of all workers that hand their batches over, beside making them; null where nobody looked."""


def wait(ledger: Ledger, machine: Machine) -> Wait | None:
    """The wait of the loop's loader, None where there is none of 5 % of the step or no loader was seen."""
    loader = ledger.facts.main_loader
    if loader is None or ledger.wall <= 0:
        return None
    ns = steady_wait(ledger, machine)
    by = _by_trace if "offline" in ledger.signals else _by_workers if loader.num_workers else _by_main
    found = _with_own(by(ledger, machine, loader, ns), ledger, ns)
    return found if max(found.ns, found.sampling_ns) >= WAIT * ledger.wall else None


def _with_own(found: Wait, ledger: Ledger, ns: float) -> Wait:
    """Return the wait with the main thread's own work in it, which is no less of it where other processes have the
    cores."""
    everything = sum(line.ns for line in ledger.lines if line.phase == "data")
    mean = max(ns, min(everything, ns + epoch_starts(ledger)))  # with the starts of epochs, where those were sampled
    sampling = mean * (_part((line.ns for line in staged_lines(ledger, SAMPLING)), everything) or 0.0)
    receiving = ns * (_part((line.ns for line in staged_lines(ledger, RECEIVING)), everything) or 0.0)
    groups = [group.ns for group in worker_groups(ledger, found.loader) if group.kind == SENDING]
    sending = sum(groups) * batches_per_step(ledger) if groups else None
    own = min(ns, max(found.ns, sampling + receiving))
    return found._replace(ns=own, sampling_ns=sampling, receiving_ns=receiving, sending_ns=sending)


def staged_lines(ledger: Ledger, stage: str) -> list[LineGroup]:
    """The sampled lines of one stage of the wait, the costliest first."""
    found = [line for line in ledger.lines if line.phase == "data" and line.stage == stage]
    return sorted(found, key=lambda line: -line.ns)


def cause(ledger: Ledger, machine: Machine) -> str | None:
    """The one code that names the usual wait best; None where there is no wait."""
    found = wait(ledger, machine)
    if found is None:
        return None
    cheap = found.item_ns is not None and found.item_ns < CHEAP_ITEM * machine.dispatch.median
    if "offline" in ledger.signals:
        return "BRR405"  # nobody looked into the workers: that they, or the main process, are too slow is what it says
    if found.sampling_ns >= HALF * found.ns:
        return "BRR410"
    if _receives(ledger, machine, found) or _sends(ledger, machine, found):
        return "BRR411"
    if found.loader.in_memory and found.loader.one_by_one and cheap and found.loader.batch_size:
        return "BRR408"
    if found.idle_share is not None and found.idle_share >= HALF:
        return "BRR402" if found.loader.num_workers else "BRR405"
    if found.collate_share is not None and found.collate_share >= HALF:
        return "BRR403"
    return "BRR401"


def _receives(ledger: Ledger, machine: Machine, found: Wait) -> bool:
    """Half of the wait, and more than taking over a batch of a few tensors costs anyhow: on crowded cores by CPU time,
    for there the worker that is asked comes late."""
    took = 1.0 if not crowded(ledger, machine) else cpu_share(staged_lines(ledger, RECEIVING))
    dear = found.receiving_ns * (1.0 if took is None else took) >= DEAR * HANDOVER_NS * batches_per_step(ledger)
    return dear and found.receiving_ns >= HALF * found.ns


def cpu_share(lines: list[LineGroup]) -> float | None:
    """Return the share of these lines' time on a processor; None where nobody looked."""
    known = [line for line in lines if line.cpu_share is not None]
    return _part((line.ns * (line.cpu_share or 0.0) for line in known), sum(line.ns for line in known))


def _sends(ledger: Ledger, machine: Machine, found: Wait) -> bool:
    """Workers are longer at handing a batch over than at making it. As long as one thread pickles the other one of a
    worker may be kept from going on, which is no reading."""
    (made, cpu), sending = making_ns(ledger, found.loader), found.sending_ns or 0.0
    blocked = 0.0 if crowded(ledger, machine) else made - cpu
    least = max(WAIT * ledger.wall, DEAR * HANDOVER_NS * batches_per_step(ledger))
    return bool(making(ledger, found.loader)) and sending >= max(least, cpu + max(0.0, blocked - sending))


def _by_trace(ledger: Ledger, machine: Machine, loader: LoaderFacts, ns: float) -> Wait:
    """Return the wait by the lines at which the loop waited, where the trace has any; its parts nobody measured."""
    lines = [line for line in ledger.lines if line.phase == "data"]
    if not lines:
        return Wait(loader, ns, None, None, None, ())
    top = lines[0]
    here = min(ns, ns * top.ns / max(ledger.account("data_wait"), sum(line.ns for line in lines)))
    return Wait(loader, ns, None, None, None, top.where, tuple((name, part * here) for name, part in top.hot), here)


def _by_workers(ledger: Ledger, machine: Machine, loader: LoaderFacts, ns: float) -> Wait:
    groups = making(ledger, loader)  # else it has nothing to do
    everything = sum(group.ns for group in groups)
    collate = _part((g.ns for g in groups if g.kind == "collate"), everything)
    fetching = [g for g in groups if g.kind == "getitem" and g.cpu_share is not None]
    idle = _part((g.ns * (1 - (g.cpu_share or 0.0)) for g in fetching), sum(g.ns for g in fetching))
    busy = cores_busy(ledger)
    if busy is not None and busy >= SATURATED * machine.effective_cores.median:
        idle = None  # they wait for a core
    if crowded(ledger, machine):
        ns = min(ns, _own_wait(ledger, loader, groups, ns, idle))
        idle = idle if idle is not None and idle >= HARDLY_RUNS else None
    kind = "collate" if (collate or 0.0) >= HALF else "getitem"
    top = max((g for g in groups if g.kind == kind and g.where), key=lambda g: g.ns, default=None)
    item = everything / loader.batch_size if everything and loader.batch_size else None
    return Wait(loader, ns, collate, idle, item, top.where if top else _defined(loader, kind))


def _own_wait(ledger: Ledger, loader: LoaderFacts, groups: list[WorkerGroup], ns: float, idle: float | None) -> float:
    """Return the wait without other processes: the workers' time per batch, CPU time alone unless they read, less the
    step's.

    Workers and step that share the cores left by other processes wait for each other whatever they do. Where nobody
    saw the workers, half a step of waiting is taken for theirs, less is not.
    """
    if idle is None:
        return ns if ns >= HALF * ledger.wall else 0.0
    reads = idle >= HARDLY_RUNS
    batch = sum(group.ns * (1.0 if reads or group.cpu_share is None else group.cpu_share) for group in groups)
    step = (ledger.facts.process_load or 0.0) * ledger.wall
    return max(0.0, batch * batches_per_step(ledger) / loader.num_workers - step)


def _by_main(ledger: Ledger, machine: Machine, loader: LoaderFacts, ns: float) -> Wait:
    lines = [line for line in ledger.lines if line.phase == "data" and line.stage != SAMPLING]
    everything = sum(line.ns for line in lines)
    collated = [(_collating(line, loader), line) for line in lines]
    collate = _part((part for part, _ in collated), everything)
    idle = _part((line.ns for line in lines if line.waiting), everything)
    rest = [line for line in ledger.lines if line.phase != "data"]
    if crowded(ledger, machine) and sum(r.ns for r in rest if r.waiting) >= HALF * sum(r.ns for r in rest):
        idle = None  # the rest of the step is off the processor as well: the whole thread waits its turn
    item = ns / batches_per_step(ledger) / loader.batch_size if loader.batch_size else None
    kind = "collate" if (collate or 0.0) >= HALF else "getitem"
    parts = collated if kind == "collate" else [(line.ns - part, line) for part, line in collated]
    top = max(parts, key=lambda pair: pair[0], default=None)
    return Wait(loader, ns, collate, idle, item, top[1].where if top and top[1].where else _defined(loader, kind))


def _part(some: Iterable[float], everything: float) -> float | None:
    return sum(some) / everything if everything > 0 else None


def _collating(line: LineGroup, loader: LoaderFacts) -> float:
    """Return the ns of a line of the loader spent on collating: all below the user's collate function, else torch's
    own."""
    return line.ns if in_function(line.where, loader.collate_span) else below(line, COLLATE)[0]


def _defined(loader: LoaderFacts, kind: str) -> tuple[Span, ...]:
    """Return the place where the loader's parts are defined, where no line was sampled."""
    return first_span(loader.collate_span if kind == "collate" else loader.dataset_span, loader.created_span)
