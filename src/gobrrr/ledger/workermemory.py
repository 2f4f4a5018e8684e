"""What a loader's workers hold alone, and by how much that grows with each batch."""

from __future__ import annotations

from itertools import combinations
from statistics import median

from gobrrr.ledger.model import WorkerMemory
from gobrrr.recording.run import Worker

FEWEST = 4
"""Readings of a worker that make a slope: of two or three a batch that waits to be sent makes one."""


def worker_memory(workers: tuple[Worker, ...]) -> WorkerMemory | None:
    """Of all workers together; None where none was read. Growth is per batch of the loop, whoever made it."""
    last = {worker.pid: worker for worker in workers if worker.memory}
    if not last:
        return None
    grown = [slope for worker in last.values() if (slope := _slope(worker.memory)) is not None]
    held = sum(worker.memory[-1][1] for worker in last.values())
    return WorkerMemory(len(last), held, sum(grown) / len(grown) if grown else None)


def _slope(rows: tuple[tuple[int, int], ...]) -> float | None:
    """Bytes per batch: the median of all pairs (Theil and Sen), of which batches that come and go are no part."""
    if len(rows) < FEWEST:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(rows, 2) if b[0] > a[0]]
    return median(slopes) if slopes else None
