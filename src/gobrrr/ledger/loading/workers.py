"""Time of a loader's workers by what they do, from samples of them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gobrrr.ledger.host.stacks import Stack, Sum, read_stack, weighted
from gobrrr.ledger.loading.loader_stages import SENDING
from gobrrr.ledger.model.ledger import WorkerGroup
from gobrrr.recording.model.facts import Span
from gobrrr.recording.run_folder.run import Worker

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
        WorkerGroup(
            loader,
            kind,
            where,
            total.ns / batches,
            total.libraries(batches),
            min(1.0, total.cpu / total.ns),
            total.own_share,
        )
        for (kind, where), total in sums.items()
    ]
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
