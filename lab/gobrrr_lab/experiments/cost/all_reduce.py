"""45: all-reduce in a ring or as a butterfly, by ranks and size."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gobrrr_lab.measure.bench import Bench, middle_of, ratio
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.ranks import meet

RANKS, ROUNDS = (1, 2, 4, 8), 20
SIZES = (1_000, 10_000, 100_000, 1_000_000)
Swap = Callable[[Any, int, int], Any]
"""(what is sent, to whom, from whom) gives what came."""


def measure(bench: Bench) -> Found:
    """One to eight processes over gloo's send and receive: time of each way by size, beside latency and bytes as two
    ranks have them, times the ranks for each core; sums must be right."""
    ranks, sizes = (RANKS, SIZES) if not bench.tiny else (RANKS[:2], SIZES[:2])
    found = meet(_measured, max(ranks), ranks, sizes, bench.size(ROUNDS, 3))
    times = {key: middle_of(walls) for key, walls in found.items()}
    few, many = (times["butterfly", 2, size].value for size in (sizes[0], sizes[-1]))
    per_byte = max(0.0, (many - few) / (4 * (sizes[-1] - sizes[0])))
    latency, cores = max(1.0, few - 4 * sizes[0] * per_byte), bench.machine.usable_cores or bench.machine.logical_cores

    def predicted(way: str, n: int, size: int) -> float:
        messages, num_bytes = costs(way, n, 4.0 * size)
        return max(1.0, n / cores) / max(1.0, 2 / cores) * (messages * latency + num_bytes * per_byte)

    keys = [(way, n, size) for n in ranks[1:] for way in WAYS for size in sizes]
    rows = []
    for way, n, size in keys:
        label = f"{way}, {n} ranks, {size:,} numbers"
        rows.append(Row(label, times[way, n, size], predicted(way, n, size), size, "ns", f"{way} {n}"))
    most = ranks[-1]
    over = {size: ratio(times["ring", most, size], times["butterfly", most, size]) for size in sizes}
    said = {size: predicted("ring", most, size) / predicted("butterfly", most, size) for size in sizes}
    rows += [Row(f"ring over butterfly, {most} ranks, {size:,}", over[size], said[size], unit="x") for size in sizes]
    alone = times["ring", 1, sizes[-1]]
    rows.append(Row(f"one rank, {sizes[-1]:,} numbers: nothing to send", alone, unit="ns"))
    return Found(over[sizes[0]], said[sizes[0]], tuple(rows), _crowd(times, most, sizes[0], cores))


def costs(way: str, n: int, num_bytes: float) -> tuple[int, float]:
    """Messages one after the other, and bytes that a rank sends in all: the formulas."""
    rounds = n.bit_length() - 1
    return (rounds, rounds * num_bytes) if way == "butterfly" else (2 * (n - 1), 2 * (n - 1) / n * num_bytes)


def ring(x: Any, rank: int, n: int, swap: Swap) -> None:
    """Sums a part on its way around, then sends the sums around."""
    parts = list(x.chunk(n))
    for step in range(2 * (n - 1)):
        mine, theirs = (rank - step) % n, (rank - step - 1) % n
        came = swap(parts[mine], (rank + 1) % n, (rank - 1) % n)
        parts[theirs].copy_(came if step >= n - 1 else parts[theirs] + came)


def butterfly(x: Any, rank: int, n: int, swap: Swap) -> None:
    """Swaps everything with a partner at twice the distance each time."""
    for step in range(n.bit_length() - 1):
        x += swap(x, rank ^ (1 << step), rank ^ (1 << step))


WAYS = {"ring": ring, "butterfly": butterfly}


def _crowd(times: dict[tuple[str, int, int], Figure], most: int, size: int, cores: int) -> str:
    two, all_of_them = (times["butterfly", n, size].value / (n.bit_length() - 1) / 1e3 for n in (2, most))
    said = f"A round of the butterfly takes {two:.0f} us with two ranks and {all_of_them:.0f} with {most}"
    shared = f": {most / cores:g} ranks share a core here, so a partner is not always there."
    return said + (shared if most > cores else ", each on a core of its own.")


def _measured(rank: int, ranks: tuple[int, ...], sizes: tuple[int, ...], rounds: int) -> dict[Any, list[float]]:
    """Nanoseconds of each round by (way, ranks, numbers)."""
    import torch
    import torch.distributed as dist

    def swap(x: Any, to: int, by: int) -> Any:
        came = torch.empty_like(x)
        sent = dist.isend(x, to)
        dist.recv(came, by)
        if sent is not None:
            sent.wait()
        return came

    found: dict[Any, list[float]] = {}
    for n in ranks:
        group = dist.new_group(range(n))
        for turn in range((rounds + 1) * len(sizes) * len(WAYS) if rank < n else 0):
            (name, way), size = list(WAYS.items())[turn % 2], sizes[turn // 2 % len(sizes)]
            x = torch.full((size,), float(rank + 1))
            dist.barrier(group)
            began = time.perf_counter_ns()
            way(x, rank, n, swap)
            found.setdefault((name, n, size), []).append(float(time.perf_counter_ns() - began))
            assert bool((x == n * (n + 1) / 2).all())
        dist.barrier()
    return {key: walls[1:] for key, walls in found.items()}  # the first of each connects


EXPERIMENT = Experiment(
    number=45, chapter="cost", title="All-reduce in a ring or as a butterfly",
    claim="A butterfly needs fewer rounds and wins for small messages; a ring moves fewer bytes and wins for large "
    "ones.",
    source="course EDLS, week 3: 1 to 32 workers, 1,000 to 100,000 numbers over gloo",
    published="the curves cross; no table",
    factor="time of a ring over a butterfly, eight ranks, 1,000 numbers",
    reproduced=(1.5, 10.0),
    why="n ranks need 2 (n - 1) messages of an n-th of the data in a ring, so 2 (n - 1) / n of it in all, and log2 n "
    "messages of all of it in a butterfly. A message costs its latency plus its bytes, so few large ones win while "
    "latency rules. On one machine memory is the wire, and a process that waits for a core is the latency.",
    measure=measure, needs=("torch", "gloo"), axis="numbers", seconds=15.0,
)  # fmt: skip
