"""41: a linear layer as a product of two thin ones."""

from __future__ import annotations

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row

RANKS = (16, 64, 256)
JUDGED = 64


def measure(bench: Bench) -> Found:
    """A weight whose spectrum falls as 1/k, cut after r singular values: error of the weight, time of the layer."""
    torch = bench.torch
    size, x = bench.size(1024, 256), torch.rand(bench.size(512, 8), bench.size(1024, 256))
    u, v = (torch.linalg.qr(torch.randn(size, size))[0] for _ in range(2))
    spectrum = 1 / torch.arange(1, size + 1)
    weight = u * spectrum @ v.T
    rows, factor = [], Figure.exact(1.0)
    for rank in RANKS:
        left, right = u[:, :rank] * spectrum[:rank], v.T[:rank].contiguous()
        figure = bench.pair(lambda: x @ weight, lambda a=left, b=right: x @ a @ b, of=len(RANKS))  # type: ignore[misc]
        factor = figure if rank == JUDGED else factor
        error = float((weight - left @ right).norm() / weight.norm())
        left_out = float(spectrum[rank:].norm() / spectrum.norm())
        rows.append(Row(f"rank {rank}: times as fast", figure, size / (2 * rank), x=rank, unit="x"))
        rows.append(Row(f"rank {rank}: error of the weight", Figure.exact(100 * error), 100 * left_out, unit="%"))
    return Found(factor, size / (2 * JUDGED), tuple(rows))


EXPERIMENT = Experiment(
    number=41, chapter="smaller", title="A linear layer as two thin ones",
    claim="A weight of n x n with r large singular values is a product of n x r and r x n: n / 2r times fewer "
    "FLOPs, and the error is the norm of what was cut.",
    source="course on efficient deep learning, tensor decompositions; Eckart and Young (1936)",
    published="the bound of the error; FLOPs fall by n / 2r",
    factor="time of a layer of 1024 x 1024 over its factors of rank 64, batch 512, fp32",
    reproduced=(3.0, 9.0),
    why="The best approximation of rank r keeps the r largest singular values, and its error is the rest, exactly. "
    "Trained weights rarely fall off as fast as this one, so one trains on after the cut, or cuts the update "
    "instead (LoRA). Thin products have less work for each number that they read, so the gain in time lies below "
    "that in FLOPs.",
    measure=measure, seconds=12.0,
)  # fmt: skip
