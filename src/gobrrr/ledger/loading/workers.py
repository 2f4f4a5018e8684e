"""What do a loader's workers do: their time, from samples of them; their memory; the samples that took longest?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from statistics import median

import numpy as np

from gobrrr.ledger.host.stacks import SENDING, Stack, Sum, read_stack, weighted
from gobrrr.ledger.model.ledger import SampleTime, WorkerGroup, WorkerMemory
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.vitals import median_slope
from gobrrr.recording.run_folder.run import Samples, Worker

_READING = frozenset({"__getitem__", "__getitems__", "__next__", "__iter__", "<listcomp>"})


def worker_groups(
    workers: tuple[Worker, ...], loader: int, collates: frozenset[str] = frozenset()
) -> list[WorkerGroup]:
    """Loader workers' time per batch by what they did: getitem, collate, or other (queues: idle), and the CPU time of
    sending it. `collates` names the loaders' collate functions."""
    sums: dict[tuple[str, tuple[Span, ...]], Sum] = defaultdict(Sum)
    batches = max(1, sum(worker.batches for worker in workers))
    for worker in workers:
        samples = worker.samples
        stacks = [read_stack(samples, stack) for stack in samples.stacks]
        sampled = np.array([[samples.t[0], samples.t[-1]]]) if samples.t else np.zeros((0, 2), np.int64)
        for sample in weighted(samples, sampled):
            stack = stacks[sample.stack]
            sums[(kind_of(stack, collates), stack.where)].add(stack, sample)
    groups = [
        WorkerGroup(loader, kind, where, total.ns / batches, total.libraries(batches),
                    min(1.0, total.cpu / total.ns), total.own_share)
        for (kind, where), total in sums.items()
    ]  # fmt: skip
    sent = [worker.sent_cpu_ns for worker in workers if worker.sent_cpu_ns is not None]
    if any(sent):
        groups.append(WorkerGroup(loader, SENDING, (), sum(sent) / batches, cpu_share=1.0))
    return sorted(groups, key=lambda g: -g.ns)


def kind_of(stack: Stack, collates: frozenset[str] = frozenset()) -> str:
    """getitem or collate by what the fetcher called; other outside it. A fetcher itself at work indexes."""
    place = next((i for i, frame in enumerate(stack.frames) if _fetches(*frame)), -1)
    if place < 0:
        return "other"
    called = [(file, function.rsplit(".", 1)[-1]) for file, function in stack.frames[:place]]
    if not called or any(function in _READING for _, function in called[-2:]):
        return "getitem"
    file, function = called[-1]
    if function in collates or function == "__call__" or file.endswith("_utils/collate.py"):
        return "collate"
    return "getitem" if "Iterable" in stack.frames[place][1] else "collate"


def _fetches(file: str, function: str) -> bool:
    """torch's fetchers; before Python 3.11 a function's name does not tell its class."""
    return file.endswith("torch/utils/data/_utils/fetch.py") and function.rsplit(".", 1)[-1] == "fetch"


MOST = 8
"""That are kept: a person looks at a few."""
SECOND = 1_000_000_000  # ns in a second


def slow_samples(threads: Iterable[Samples]) -> tuple[SampleTime, ...]:
    """The longest by their index, each once, the longest first. What was seen once may have taken any time."""
    longest: dict[int, SampleTime] = {}
    for samples in threads:
        for found in _made(samples):
            if found.ns > (longest[found.index].ns if found.index in longest else 0.0):
                longest[found.index] = found
    return tuple(sorted(longest.values(), key=lambda each: (-each.ns, each.index))[:MOST])


def _made(samples: Samples) -> Iterator[SampleTime]:
    """Each time that a sample was seen being made twice or more in a row, with half an interval before and after."""
    for index, rows in groupby(range(len(samples.index)), key=lambda row: samples.index[row]):
        seen = list(rows)
        if index < 0 or len(seen) < 2:
            continue
        first, last = seen[0], seen[-1]
        known = min(samples.cpu[first], samples.cpu[last]) >= 0
        spent = samples.t[last] - samples.t[first]
        cpu = min(spent, samples.cpu[last] - samples.cpu[first]) if known else None
        yield SampleTime(index, spent + samples.interval * SECOND, float(cpu) if cpu is not None else None)


FEWEST = 6
"""Numbers of batches at which a worker was read, three in each half: of two a batch that waits is a slope."""


def worker_memory(workers: tuple[Worker, ...]) -> WorkerMemory | None:
    """Memory of all workers together; None where none was read. Growth is per batch of the loop, whoever made it."""
    last = {worker.pid: worker for worker in workers if worker.memory}
    if not last:
        return None
    grown = [growth for worker in last.values() if (growth := _growth(worker.memory)) is not None]
    held = sum(worker.memory[-1][1] for worker in last.values())
    return WorkerMemory(len(last), held, median(grown) if grown else None)


def _growth(rows: tuple[tuple[int, int], ...]) -> float | None:
    """Bytes per batch, of the half that grew less: a jump (a garbage collection writes to all objects) is in one half
    alone, and what levels off grows less in the second."""
    read = np.array(list(dict(rows).items()))  # the last of each number of batches: between batches nothing is made
    if len(read) < FEWEST:
        return None
    half = len(read) // 2
    return min(median_slope(read[:half]), median_slope(read[half:]))  # batches that come and go are no part of it
