"""45: all-reduce in a ring or as a butterfly."""

from __future__ import annotations

import math
import multiprocessing
import tempfile
import time
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench, middle_of, ratio
from gobrrr.lab.model import Experiment, Found, Row

RANKS, ROUNDS = 4, 30
SIZES = (1_000, 10_000, 100_000)
WAIT_S = 60


def measure(bench: Bench) -> Found:
    """Four processes over gloo's send and receive: time of each way by size; sums must be right."""
    sizes = SIZES if not bench.tiny else SIZES[:1]
    rounds = bench.size(ROUNDS, 2)
    queue: Any = multiprocessing.get_context("spawn").Queue()
    context = multiprocessing.get_context("spawn")
    with tempfile.NamedTemporaryFile(prefix="gobrrr-lab-") as meeting:
        ranks = [
            context.Process(target=_rank, args=(r, meeting.name + ".store", sizes, rounds, queue)) for r in range(RANKS)
        ]
        for process in ranks:
            process.start()
        try:
            times = {key: middle_of(walls) for key, walls in queue.get(timeout=WAIT_S).items()}
        except Exception:
            raise GobrrrError("the processes did not meet over gloo") from None
        finally:
            for process in ranks:
                process.join(5)
                process.kill()
    rows = tuple(
        Row(f"{size:,} numbers: {way}", times[way, size], x=size, unit="ns")
        for size in sizes
        for way in ("ring", "butterfly")
    )
    steps = 2 * (RANKS - 1) / math.log2(RANKS)
    return Found(ratio(times["ring", sizes[0]], times["butterfly", sizes[0]]), steps, rows)


def _rank(rank: int, store: str, sizes: tuple[int, ...], rounds: int, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    found = {}
    for size in sizes:
        for name, way in (("ring", ring), ("butterfly", butterfly)):
            walls = []
            for _ in range(rounds):
                x = torch.full((size - size % RANKS,), float(rank + 1))
                dist.barrier()
                began = time.perf_counter_ns()
                way(torch, dist, x, rank)
                walls.append(float(time.perf_counter_ns() - began))
                assert float(x[0]) == float(x[-1]) == RANKS * (RANKS + 1) / 2
            found[name, size] = walls
    if rank == 0:
        queue.put(found)
    dist.destroy_process_group()


def ring(torch: Any, dist: Any, x: Any, rank: int) -> None:
    """Sums a part on its way around, then sends the sums around: 2 (p - 1) steps of size / p."""
    parts = list(x.chunk(RANKS))
    for step in range(2 * (RANKS - 1)):
        gathers = step >= RANKS - 1
        mine, theirs = (rank - step) % RANKS, (rank - step - 1) % RANKS
        came = torch.empty_like(parts[theirs])
        sent = dist.isend(parts[mine].clone(), (rank + 1) % RANKS)
        dist.recv(came, (rank - 1) % RANKS)
        sent.wait()
        parts[theirs].copy_(came if gathers else parts[theirs] + came)


def butterfly(torch: Any, dist: Any, x: Any, rank: int) -> None:
    """Swaps everything with a partner at twice the distance each time: log2 p steps of size."""
    for step in range(int(math.log2(RANKS))):
        partner, came = rank ^ (1 << step), torch.empty_like(x)
        sent = dist.isend(x.clone(), partner)
        dist.recv(came, partner)
        sent.wait()
        x += came


EXPERIMENT = Experiment(
    number=45, chapter="cost", title="All-reduce in a ring or as a butterfly",
    claim="A butterfly needs fewer steps and wins for small messages; a ring moves fewer bytes and wins for large "
    "ones.",
    source="course EDLS, week 3: 1 to 32 workers, 1,000 to 100,000 numbers over gloo",
    published="the curves cross; no table",
    factor="time of a ring over a butterfly, four ranks, 1,000 numbers",
    reproduced=(1.2, 5.0),
    why="p ranks need 2 (p - 1) steps of a p-th of the data in a ring and log2 p steps of all of it in a "
    "butterfly. A step costs its latency plus its bytes, so few large steps win while latency rules. On one machine "
    "memory is the wire, and a process that waits for a core is the latency.",
    measure=measure, needs=("torch", "gloo"), axis="numbers", seconds=10.0,
)  # fmt: skip
