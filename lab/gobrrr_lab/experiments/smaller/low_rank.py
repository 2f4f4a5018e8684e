"""41: a linear layer as a product of two thin ones."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

RANKS = (16, 64, 256)
JUDGED = 64  # rank of the judged figure; proposed: the middle one of RANKS; the others' rows would settle it


def measure(bench: Bench) -> Found:
    """A weight whose spectrum falls as 1/k, cut after r singular values: error of the weight, time of the layer;
    and the error for spectra that fall otherwise."""
    torch = bench.torch
    size, x = bench.size(1024, 256), torch.rand(bench.size(512, 8), bench.size(1024, 256))
    u, v = (torch.linalg.qr(torch.randn(size, size))[0] for _ in range(2))
    spectrum = 1 / torch.arange(1, size + 1)
    weight = u * spectrum @ v.T
    rows, factor = [], Figure.exact(1.0)
    for rank in RANKS:
        left, right = u[:, :rank] * spectrum[:rank], v.T[:rank].contiguous()
        figure = bench.pair(lambda: x @ weight, lambda a=left, b=right: x @ a @ b, of=len(RANKS) + 1)  # type: ignore[misc]
        factor = figure if rank == JUDGED else factor
        error = float((weight - left @ right).norm() / weight.norm())
        left_out = float(spectrum[rank:].norm() / spectrum.norm())
        rows.append(Row(f"rank {rank}: times as fast", figure, size / (2 * rank), x=rank, unit="x"))
        rows.append(Row(f"rank {rank}: error of the weight", Figure.exact(100 * error), 100 * left_out, unit="%"))
    for name, other in spectra(torch, size).items():
        whole = u * other @ v.T
        error = 100 * float((whole - (u[:, :JUDGED] * other[:JUDGED]) @ v.T[:JUDGED]).norm() / whole.norm())
        left_out = 100 * float(other[JUDGED:].norm() / other.norm())
        rows.append(Row(f"rank {JUDGED} of a spectrum {name}: error", Figure.exact(error), left_out, unit="%"))
    return Found(factor, size / (2 * JUDGED), (*rows, *_convolution(bench)))


def spectra(torch: Any, size: int) -> dict[str, Any]:
    """Singular values that fall in several ways."""
    k = torch.arange(1, size + 1, dtype=torch.float32)
    return {"1 / k^2": k**-2, "1 / sqrt(k)": k**-0.5, "exp(-k / 64)": (-k / 64).exp(), "flat": torch.ones(size)}


def _convolution(bench: Bench) -> list[Row]:
    """A 3 x 3 convolution of 128 channels as 1 x 1, 3 x 3 of 32 and 1 x 1: Tucker, by the SVDs of two unfoldings."""
    torch, channels, rank = bench.torch, bench.size(128, 8), bench.size(32, 2)
    conv2d, core = torch.nn.functional.conv2d, torch.randn(rank, rank, 3, 3)
    out, into = (torch.linalg.qr(torch.randn(channels, rank))[0] for _ in range(2))
    weight = torch.einsum("or,rshw,cs->ochw", out, core, into) + 1e-3 * torch.randn(channels, channels, 3, 3)
    a = torch.linalg.svd(weight.flatten(1), full_matrices=False)[0][:, :rank]
    b = torch.linalg.svd(weight.transpose(0, 1).flatten(1), full_matrices=False)[0][:, :rank]
    small = torch.einsum("or,ochw,cs->rshw", a, weight, b)
    x = torch.rand(bench.size(4, 1), channels, 28, 28)

    def thin() -> object:
        return conv2d(conv2d(conv2d(x, b.T[..., None, None]), small, padding=1), a[..., None, None])

    error = float((torch.einsum("or,rshw,cs->ochw", a, small, b) - weight).norm() / weight.norm())
    flops = 9 * channels**2 / (2 * channels * rank + 9 * rank**2)
    figure = bench.pair(lambda: conv2d(x, weight, padding=1), thin, of=len(RANKS) + 1)
    return [Row("3 x 3 convolution, Tucker rank 32: times as fast", figure, flops, unit="x"),
            Row("its error", Figure.exact(100 * error), unit="%")]  # fmt: skip


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
