"""Memory that a loader's workers hold alone, and by how much it grows steadily with each batch."""

from __future__ import annotations

from itertools import combinations
from statistics import median

from gobrrr.ledger.model.ledger import WorkerMemory
from gobrrr.recording.run_folder.run import Worker

FEWEST = 6
"""Numbers of batches at which a worker was read, three in each half: of two a batch that waits is a slope."""


def worker_memory(workers: tuple[Worker, ...]) -> WorkerMemory | None:
    """Return the memory of all workers together; None where none was read. Growth is per batch of the loop, whoever
    made it."""
    last = {worker.pid: worker for worker in workers if worker.memory}
    if not last:
        return None
    grown = [growth for worker in last.values() if (growth := _growth(worker.memory)) is not None]
    held = sum(worker.memory[-1][1] for worker in last.values())
    return WorkerMemory(len(last), held, median(grown) if grown else None)


def _growth(rows: tuple[tuple[int, int], ...]) -> float | None:
    """Bytes per batch, of the half that grew less: a jump (a garbage collection writes to all objects) is in one half
    alone, and what levels off grows less in the second."""
    read = list(dict(rows).items())  # the last of each number of batches: between batches nothing is made
    if len(read) < FEWEST:
        return None
    half = len(read) // 2
    return min(_slope(read[:half]), _slope(read[half:]))


def _slope(rows: list[tuple[int, int]]) -> float:
    """Bytes per batch: the median of all pairs (Theil and Sen), of which batches that come and go are no part."""
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(rows, 2))
