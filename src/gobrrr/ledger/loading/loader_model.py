"""How long is a step with so many loader workers? Pure, from what one recording of the program holds.

    step(0) = C + I + P                                           one after the other, in the main process
    step(w) = max(C + H + crowd, (I + P + H) / w, (C x busy + P + H) / cores)    beside each other

C is the step with its batches ready, I and P what its batches block and compute, H handing them over. A worker blocks
and computes in turn, so that w of them bring w batches in I + P: the second term. All that is computed shares the
cores: the third. Ops with a thread on every core wait for the one whose core a worker has: what workers compute there
is added to the step (crowd).
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

HANDOVER_NS = 1.5e6
"""Cost in ns of a batch from a worker to a loop that had none: small pictures, two cores, 1.2 to 2.1 ms where the main
process took 0.1 to 0.5 for the batch itself. A step of 3.8 ms with a wait of 0.9 was 1.5 times as long with workers."""
PREFETCH = 2
"""Batches that a DataLoader's worker holds ready where nothing is said (torch.utils.data.DataLoader)."""
ALIKE = 0.02
"""Steps this near are one figure: the fewest workers of them are advised."""
WITHIN = 0.25
"""Share that a predicted step may be off by, nine times in ten (decision 0019)."""


class Cores(NamedTuple):
    """Effective cores, measured: the median and its quartiles."""

    median: float
    low: float
    high: float


class Pipeline(NamedTuple):
    """One step of a loop and the loading of its batches. ns per step."""

    compute_ns: float
    """C: the step with its batches ready."""
    blocked_ns: float
    """I: loading that waits for disk, network or a sleep."""
    cpu_ns: float
    """P: loading that computes."""
    busy: float = 0.0
    """Cores that the program keeps busy during C, mean."""
    threads: int = 1
    """Threads of its ops."""
    batches: float = 1.0
    """Per step."""
    spread: float = 0.0
    """Half the 95 % interval of the recorded step, as a share of it."""
    received_ns: float = 0.0
    """Time in ns that the main process was seen to spend on taking batches over; 0 where there are no workers."""

    @property
    def parallel(self) -> float:
        """Share of C in which ops run on all threads: `busy` is 1 beside it."""
        return min(1.0, max(0.0, (self.busy - 1) / (self.threads - 1))) if self.threads > 1 else 0.0

    def with_threads(self, threads: int) -> Pipeline:
        """The same with so many threads: what ran on all of them takes longer, and as much CPU time."""
        most = max(1, min(threads, self.threads))
        compute = self.compute_ns * (1 - self.parallel + self.parallel * self.threads / most)
        busy = self.busy * self.compute_ns / compute if compute else 0.0
        return self._replace(compute_ns=compute, busy=busy, threads=most)


class Predicted(NamedTuple):
    """A step, ns, with the interval that it lies in nine times of ten."""

    expected: float
    low: float
    high: float


def step(pipeline: Pipeline, workers: int, cores: float) -> float:
    """ns of the step with so many workers on so many effective cores."""
    if not workers:
        return pipeline.compute_ns + pipeline.blocked_ns + pipeline.cpu_ns
    return max(_own(pipeline, workers, cores), _loaded(pipeline, workers, cores))


def _own(pipeline: Pipeline, workers: int, cores: float, times: float = 1.0) -> float:
    """The main process's part: the step, and `times` what workers cost it."""
    handed = max(_handed(pipeline), pipeline.received_ns)
    return pipeline.compute_ns + times * (handed + _crowd(pipeline, workers, cores))


def _loaded(pipeline: Pipeline, workers: int, cores: float) -> float:
    """Until a batch comes: what so many workers bring, and what the cores that the step itself had, or more, do."""
    loading = pipeline.blocked_ns + pipeline.cpu_ns + _handed(pipeline)
    work = pipeline.compute_ns * pipeline.busy + pipeline.cpu_ns + _handed(pipeline)
    return max(loading / workers, work / max(cores, pipeline.busy, 1e-9))


def _handed(pipeline: Pipeline) -> float:
    return HANDOVER_NS * pipeline.batches if pipeline.blocked_ns + pipeline.cpu_ns else 0.0


def _crowd(pipeline: Pipeline, workers: int, cores: float) -> float:
    """ns that workers keep ops waiting which have a thread on each core: a ViT's 45 ms on four cores were 51 with one
    worker beside four threads, and 25 with one beside three."""
    free = max(0.0, cores - pipeline.threads)
    return pipeline.parallel * pipeline.cpu_ns * max(0.0, 1 - free / workers)


def predicted(pipeline: Pipeline, workers: int, cores: Cores) -> Predicted:
    """The step with what the recording leaves open: its own spread, that of the cores, and what the model is off by, of
    which the step with its batches ready is no part: workers may cost it nothing, or twice what they are thought to."""
    expected, spread = step(pipeline, workers, cores.median), pipeline.spread
    if not workers:
        return Predicted(expected, (1 - spread) * expected, (1 + spread) * expected)
    least = max(pipeline.compute_ns, (1 - WITHIN) * _loaded(pipeline, workers, cores.high))
    most = max(_own(pipeline, workers, cores.low, 2.0), (1 + WITHIN) * _loaded(pipeline, workers, cores.low))
    return Predicted(expected, (1 - spread) * least, (1 + spread) * most)


def best(pipeline: Pipeline, cores: float, most: int) -> int:
    """The fewest of at most so many workers with which the step is as short as it can be, or nearly."""
    steps = [step(pipeline, workers, cores) for workers in range(most + 1)]
    least = min(steps)
    return next((workers for workers, ns in enumerate(steps) if ns <= (1 + ALIKE) * least), 0)  # 0: NaN is no time


def enough(cores: float, workers: int) -> int:
    """Workers that are worth a look: reading overlaps whatever the cores do, computing on them alone."""
    return max(4, 2 * workers, ceil(2 * cores))


def late(slow_ns: float, workers: int, step_ns: float) -> float:
    """Return the ns that a loop still waits for one batch that is so much slower than others: it was asked for while
    those before it were ready, as many as workers hold, and they come in their order."""
    return max(0.0, slow_ns - max(0, PREFETCH * workers - 1) * step_ns)
