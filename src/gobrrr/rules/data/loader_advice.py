"""How many workers, or how much cheaper samples, does the loader model advise; how much would keeping them save?"""

from __future__ import annotations

from statistics import median, stdev
from typing import NamedTuple

from gobrrr.ledger.loading import loader_model
from gobrrr.ledger.loading.loader_model import Cores, Pipeline
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import LoaderFacts, Span
from gobrrr.rules.data.library_calls import KEEPER, most_workers
from gobrrr.rules.data.wait_stages import Wait, period
from gobrrr.rules.model.cores import batches_per_step, cores_busy, free_cores, left_by_others, making_ns, recovers
from gobrrr.rules.model.evidence import count, ratio, size, time
from gobrrr.rules.model.finding import Cause, Quantity, fitting, slack, whole
from gobrrr.units import duration, share

SAVED_BY_WORKERS, SAVED_BY_ONE, WORKERS, HELD_BYTES = "saved_by_workers", "saved_by_one", "workers", "held_bytes"
NUM_WORKERS, AHEAD = "num_workers", "batches_ahead"
"""Names in a finding's evidence that the remedies ask for."""
EXPECTED_BY = "expected_by"
"""Key of the evidence that names the basis of the expected saving: a measurement, or a guess where there is none."""

ALIKE = 0.10
"""Mean and median wait this near are one figure."""
SURE = 1.96
"""Standard errors of a mean's 95 % interval."""


class Gain(NamedTuple):
    """ns per step: at least, expected."""

    low: float
    expected: float


class Loading:
    """The loop and its loader as the model sees them. A trace says nothing of cores and of what workers do."""

    def __init__(self, ledger: Ledger, machine: Machine, found: Wait) -> None:
        self._ledger, self._machine, self._found = ledger, machine, found
        self._most = most_workers(found.loader)
        working = found.loader.num_workers if self._most is None else min(found.loader.num_workers, self._most)
        self.workers, self._rest = working, max(0.0, ledger.wall - ledger.account("data_wait"))
        self.now = self._rest + found.ns
        """ns of the step, of the mean one where batches come in bursts."""
        got, left = machine.effective_cores, left_by_others(ledger, machine)
        self.cores = Cores(free_cores(ledger, machine), min(got.low, left), min(got.high, left))
        """Effective cores that other processes left."""
        self.pipeline = self._of(ledger, found)
        modelled = loader_model.step(self.pipeline, self.workers, self.cores.median)
        self._scale = self.now / modelled if modelled and self.workers else 1.0
        """Measured over modelled step with the workers there are: taken to hold for other numbers of workers as
        well."""

    def _of(self, ledger: Ledger, found: Wait) -> Pipeline:
        blocked, cpu = _blocked_and_cpu(ledger, found, self.workers, self.now)
        load = ledger.facts.process_load
        spent = float("inf") if load is None else load * self.now - (0.0 if self.workers else cpu)
        busy = min(float(ledger.threads), max(0.0, spent / self._rest)) if self._rest else 0.0
        spread = min(0.5, slack(ledger) / ledger.wall)
        batches = batches_per_step(ledger)
        return Pipeline(self._rest, blocked, cpu, busy, ledger.threads, batches, spread, found.receiving_ns)

    @property
    def wanted(self) -> int:
        """The fewest workers that are as good as any, had each something to read."""
        most = loader_model.enough(self.cores.median, self.workers)
        return loader_model.best(self.pipeline, self.cores.median, most)

    @property
    def advised(self) -> int:
        """No more than there are shards, where a shard is one worker's."""
        return self.wanted if self._most is None else min(self.wanted, self._most)

    def gain(self, workers: int, pipeline: Pipeline | None = None) -> Gain:
        """Return the gain of so many workers, or of another pipeline than this loop's."""
        said = loader_model.predicted(pipeline or self.pipeline, workers, self.cores)
        low, expected = (max(0.0, self.now - self._scale * ns) for ns in (said.high, said.expected))
        return Gain(min(low, expected), expected)

    def cheaper(self, blocked: float, cpu: float, step: float = 0.0) -> float:
        """Return the ns per step saved where batches block and compute for so many ns, with as many workers as now, and
        the rest of the step takes `step` ns more."""
        less = self.pipeline._replace(blocked_ns=blocked, cpu_ns=cpu, compute_ns=self.pipeline.compute_ns + step)
        return max(0.0, self.now - self._scale * loader_model.step(less, self.workers, self.cores.median))

    def lacks(self, share: float, step: float = 0.0) -> float:
        """Return the ns per step saved where samples compute less by this share of what they compute now, for which the
        rest of the step takes `step` ns more."""
        return self.cheaper(self.pipeline.blocked_ns, (1 - share) * self.pipeline.cpu_ns, step)

    def one(self) -> Gain:
        """Return the gain of one worker with a core of its own: ops lose a thread where they have all cores."""
        threads = self.pipeline.threads
        crowds = threads > 1 and threads >= self.cores.median
        return self.gain(1, self.pipeline.with_threads(threads - 1) if crowds else None)

    def cause(
        self, low: float, expected: float, message: str, *clauses: str, advice: str,
        where: tuple[Span, ...] = (), before: dict[str, Quantity] | None = None,
        more: dict[str, Quantity] | None = None, vain: tuple[str, ...] = (),
    ) -> Cause:  # fmt: skip
        """Return a finding about the usual wait: `message` goes on after how long that is, then `clauses` that fit."""
        ledger, found = self._ledger, self._found
        message = fitting(told(found, ledger) + message, *clauses)
        evidence = quantities(found, ledger) | (before or {}) | self._evidence() | (more or {})
        return Cause(
            saving=(low, expected, most(found, ledger, self._machine)), rare=is_of_few(found, ledger),
            message=message, advice=advice, where=where or found.where, evidence=evidence, vain=vain,
        )  # fmt: skip

    def _evidence(self) -> dict[str, Quantity]:
        """Return the figures that remedies choose by, and the bound that no loader fix can pass, with its source."""
        bound = _headspace(self._ledger, self._found) | {"headspace_by": Quantity("plain phase", "")}
        if "offline" in self._ledger.signals:
            return bound
        advised, ready = self.advised, self._found.loader.prefetch_factor or loader_model.PREFETCH
        held = ready * batch_bytes(self._ledger)
        return bound | {
            "blocked": time(self.pipeline.blocked_ns), "computed": time(self.pipeline.cpu_ns),
            WORKERS: count(advised), SAVED_BY_WORKERS: time(self.gain(advised).expected),
            SAVED_BY_ONE: time(self.one().expected), AHEAD: count(ready),
        } | ({HELD_BYTES: size(held)} if held else {})  # fmt: skip


def most(found: Wait, ledger: Ledger, machine: Machine) -> float:
    """All of the wait, and what it takes from the rest of the step."""
    return found.ns + recovers(ledger, machine, found.ns)


def told(found: Wait, ledger: Ledger) -> str:
    """The wait as the accounts have it; where batches come in bursts the mean, beside what the accounts have."""
    usual = ledger.account("data_wait")
    if found.ns <= (1 + ALIKE) * usual:
        return f"{duration(usual)} ({share(usual / ledger.wall)}) of every step waits for data"
    mean = f"{duration(found.ns)} per step on average ({share(found.ns / whole(ledger))}; median {duration(usual)})"
    return f"{mean} waits for data"


def is_of_few(found: Wait, ledger: Ledger) -> bool:
    """Most of the mean wait is of few steps: the median step does not have it to give back."""
    return found.ns > 2 * ledger.account("data_wait")


def num_workers(found: Wait, ledger: Ledger) -> int | None:
    """Return the number of workers of the loader. A trace cannot tell none from some; it tells how many where waits
    recur with every round of them."""
    if "offline" not in ledger.signals or not found.loader.num_workers:
        return found.loader.num_workers
    return period(ledger.step.waits)


def quantities(found: Wait, ledger: Ledger) -> dict[str, Quantity]:
    """Return the figures of a wait, those that somebody looked at."""
    workers, busy = num_workers(found, ledger), cores_busy(ledger)
    known = {
        "data_wait": time(found.ns),
        "num_workers": None if workers is None else count(workers),
        "at_line": None if found.here_ns is None else time(found.here_ns),
        "off_cpu_share": None if found.idle_share is None else ratio(found.idle_share),
        "collate_share": None if found.collate_share is None else ratio(found.collate_share),
        "per_sample": None if found.item_ns is None else time(found.item_ns),
        "cores_busy": None if busy is None else ratio(busy),
        **{f"in {name}": time(ns) for name, ns in found.hot},
    }
    return {name: figure for name, figure in known.items() if figure is not None}


def batch_bytes(ledger: Ledger) -> float:
    """Return the bytes of the model's inputs in one step: inputs are noted in several."""
    return sum(given.num_bytes for given in ledger.facts.inputs) / max(1, ledger.facts.counted_steps)


def _headspace(ledger: Ledger, found: Wait) -> dict[str, Quantity]:
    """The step less the step with its batches ready, with its 95 % interval: of the median wait, or, where batches come
    in bursts, of the mean one."""
    waits = ledger.step.waits
    said = {"headspace": time(found.ns)}
    if len(waits) < 2:
        return said
    usual = median(waits)
    low, high = median_interval(waits)
    if found.ns > high:
        usual = found.ns
        low, high = (usual + sign * SURE * stdev(waits) / len(waits) ** 0.5 for sign in (-1, 1))
    parts = {"headspace_low": found.ns - (usual - low), "headspace_high": found.ns + (high - usual)}
    return said | {name: time(max(0.0, ns)) for name, ns in parts.items()}


def prefetched(
    ledger: Ledger, machine: Machine, loader: LoaderFacts, rare: list[float], usual: float
) -> dict[str, Quantity]:
    """Return the saving of more workers where batches are slow now and then: the batches before them are ready
    meanwhile."""
    steps, now = max(1, len(ledger.step.waits)), loader.num_workers
    ahead = ledger.wall * max(0, loader_model.PREFETCH * now - 1)  # what is hidden of each already
    slow = [wait - usual + ahead for wait in rare]
    most = loader_model.enough(machine.effective_cores.median, now)
    left = [sum(loader_model.late(ns, w, ledger.wall) for ns in slow) / steps for w in range(most + 1)]
    least = min(left[now:], default=0.0)
    enough = (w for w in range(now, most + 1) if left[w] <= least + loader_model.ALIKE * ledger.wall)
    advised = next(enough, now)
    saved = {SAVED_BY_WORKERS: time(left[now] - left[advised])}
    return {"num_workers": count(now), WORKERS: count(advised)} | saved


def _blocked_and_cpu(ledger: Ledger, found: Wait, workers: int, now: float) -> tuple[float, float]:
    """ns per step that loading blocks and computes. Where nobody looked it computes: that is what cores limit."""
    idle = found.idle_share or 0.0
    if not workers:
        return idle * found.ns, (1 - idle) * found.ns
    made, cpu = making_ns(ledger, found.loader)
    if not made:
        return idle * workers * now, (1 - idle) * workers * now
    if found.idle_share is None:
        return 0.0, cpu  # they wait for a core, not for what they read
    handover = loader_model.HANDOVER_NS * batches_per_step(ledger)
    return max(made, workers * now - handover) - cpu, cpu  # the loop waits: they never do


SAVED_BY_KEEPING, LOOKS = "saved_by_keeping", "batches_without_draws"
LEAST_LOOKS = 8
"""Batches, all of them without a draw, from which samples are taken to be the same each time. What one in twenty
batches draws is missed with probability 0.66: `computed_once` looks at each before it keeps it."""
SAMPLE_NS = 10_000.0
"""Time in ns to take a kept sample of a few numbers from memory: 6 us (docs/decisions/0020), on a slow core."""


class Keeping(NamedTuple):
    """What keeping samples would save: nothing, unless so many batches were looked at and none drew anything."""

    looks: int = 0
    saved_ns: float = 0.0
    """Per step, from the second epoch on."""
    comes_again: bool = False
    """Samples were seen to come again."""

    @property
    def evidence(self) -> dict[str, Quantity]:
        """Its figures; a saving only where there are epochs to save in."""
        saved = {SAVED_BY_KEEPING: time(self.saved_ns)} if self.comes_again else {}
        return {LOOKS: count(self.looks)} | saved if self.looks else {}

    @property
    def vain(self) -> tuple[str, ...]:
        """The remedy, where it does not help."""
        return () if self.comes_again else (KEEPER,)

    @property
    def how(self) -> str:
        """Words for how to do it by hand."""
        kept = "DataLoader([dataset[i] for i in range(len(dataset))], ...)"
        return f"{kept}: none of {self.looks} batches drew a random number."

    @property
    def also(self) -> str:
        """Words that samples may also be kept, where they come again as they were."""
        return f" Where it does more: {self.how}" if self.comes_again else ""

    def advice(self, otherwise: str) -> str:
        """Advise to keep samples where they may be kept; else repeat the rule's own words."""
        if self.comes_again:
            return f"Compute each sample once: {self.how}"
        return f"{otherwise} From a second epoch on: {self.how}" if self.looks else otherwise


def keeping(ledger: Ledger, machine: Machine, loading: Loading, found: Wait) -> Keeping:
    """Nothing where nobody looked, something was drawn, workers load (what they draw is not looked at), or samples have
    no index to be kept by."""
    loader = found.loader
    looked = loader.num_looked >= LEAST_LOOKS and not loader.num_drew
    if loader.stream or loader.num_workers or not looked or loader.length is None:
        return Keeping()
    num_bytes = batch_bytes(ledger)
    copied = 2.0 * num_bytes * 1e9 / machine.byte_rate(num_bytes, 1) if num_bytes else 0.0
    reading = batches_per_step(ledger) * ((loader.batch_size or 1) * SAMPLE_NS + copied)
    left = (found.collate_share or 0.0) * loading.pipeline.cpu_ns + reading
    saved = loading.cheaper(0.0, min(left, loading.pipeline.cpu_ns + loading.pipeline.blocked_ns))
    return Keeping(loader.num_looked, saved, loader.comes_again)
