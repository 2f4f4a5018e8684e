"""Waits that come now and then: one slow sample in many, and workers that start anew in every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import mean, median

from gobrrr.ledger.loading.loader_model import HANDOVER_NS
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.cores import batches_per_step, crowded, worker_groups
from gobrrr.rules.model.finding import whole

WAIT = 0.05
"""Share of the step from which a data wait is told (tb_plugin 5 %, XProf 5 %, gpuprof 15 %)."""
SLOW = 3.0
"""Multiple of the median from which a wait is an outlier (TraceML's step outliers: 3 x median)."""
FEW_WAITS = 10
"""Waits from which a rare one is told from the usual (proposed: fewer hardly have a median and outliers beside it; how
often steady loaders are called rare at each number would settle it)."""
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
    """Every how many steps a long wait recurs, always after as many: workers in step, too slow for the loop. Null where
    none does, or long waits were seen fewer than three times."""
    least = SLOW * median(waits) if waits else 0.0
    most = max(waits, default=0.0)
    at = [i for i, wait in enumerate(waits) if wait > max(least, 0.5 * most)]
    apart = {b - a for a, b in pairwise(at)}
    found = apart.pop() if len(at) >= RECURS and len(apart) == 1 else 0
    throughout = found > 1 and at[0] < found and len(waits) - at[-1] <= found
    return found if throughout else None


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
    step = ledger.step
    rest = [wall - waited for wall, waited in zip(step.walls, step.waits, strict=False)]
    return max(0.0, mean(rest) - median(rest)) if rest else 0.0


def start_cost(ledger: Ledger) -> float:
    """ns per step that starting workers anew in every epoch costs: the iterator, what its first batch is late and that
    batch's step is long, and the last request, in which they are stopped."""
    loader = ledger.facts.main_loader
    if loader is None or not loader.num_workers or loader.persistent_workers or not loader.num_batches:
        return 0.0
    if len(loader.iter_ns) < 2:
        return 0.0  # one epoch: a cost of the run, not of the step
    usual = median(ledger.step.waits) if ledger.step.waits else 0.0
    late = sum(max(0.0, first - usual) for first in loader.first_wait_ns)
    rest = _usual_rest(ledger)
    slow = sum(max(0.0, first - rest) for first in loader.first_step_ns) if rest else 0.0
    stopping = sum(loader.end_wait_ns)
    epochs = 1 + loader.unseen_epochs / len(loader.iter_ns)
    return epochs * (sum(loader.iter_ns) + late + slow + stopping) / loader.num_batches * batches_per_step(ledger)


def epoch_starts(ledger: Ledger) -> float:
    """ns per step by which iterators and the first batches of epochs are later than others; 0 of a single epoch."""
    loader = ledger.facts.main_loader
    if loader is None or not loader.num_batches or len(loader.first_wait_ns) < 2:
        return 0.0
    usual = median(ledger.step.waits) if ledger.step.waits else 0.0
    late = sum(max(0.0, first - usual) for first in loader.first_wait_ns)
    epochs = 1 + loader.unseen_epochs / len(loader.first_wait_ns)
    return epochs * (sum(loader.iter_ns) + late) / loader.num_batches * batches_per_step(ledger)


def refill_cost(ledger: Ledger) -> float | None:
    """ns per step of start_cost that stays with workers that stay: they load the first batch of an epoch when the epoch
    begins. Null where nobody saw how long a batch takes them."""
    loader = ledger.facts.main_loader
    groups = [group for group in worker_groups(ledger, loader) if group.kind in ("getitem", "collate")]
    if loader is None or not groups or not loader.num_batches:
        return None
    usual = median(ledger.step.waits) if ledger.step.waits else 0.0
    late = max(0.0, sum(group.ns for group in groups) + HANDOVER_NS - usual)
    epochs = loader.num_epochs
    return min(start_cost(ledger), epochs * late / loader.num_batches * batches_per_step(ledger))


def _usual_rest(ledger: Ledger) -> float:
    step = ledger.step
    rest = [wall - waited for wall, waited in zip(step.walls, step.waits, strict=False)]
    return median(rest) if rest else 0.0
