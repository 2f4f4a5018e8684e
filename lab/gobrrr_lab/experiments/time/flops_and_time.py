"""2: products have nearly all FLOPs of a transformer, and far from all of its time."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

WIDTH, HEADS, LENGTH, BATCH = 512, 8, 128, 8
PER_ELEMENT = 5.0
"""FLOPs per output element of softmax, norms and activations; an addition has one. A convention."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "attention")
RUNS = 11
"""Timed runs; sorted, the second and the last but one enclose the median in 98.8 % of cases."""


def measure(bench: Bench) -> Found:
    """Self times of the ops of an encoder layer's forward and backward, attention written out, by torch's profiler."""
    torch = bench.torch
    length = bench.size(LENGTH, 4)
    layer, x = _Layer(torch), torch.rand(bench.size(BATCH, 1), length, WIDTH)
    for _ in range(2):
        layer(x).sum().backward()
    shares = []
    for _ in range(RUNS):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            layer(x).sum().backward()
        shares.append(_share(found.key_averages()))
    shares.sort()
    middle = Figure(shares[RUNS // 2], shares[1], shares[-2])
    tokens = x.shape[0] * length
    flops = 2.0 * tokens * WIDTH * (4 * WIDTH + 8 * WIDTH) + 4.0 * tokens * length * WIDTH
    others = PER_ELEMENT * (tokens * (4 * WIDTH + 4 * WIDTH) + x.shape[0] * HEADS * length**2)
    rows = (
        Row("of the FLOPs", Figure.exact(100 * flops / (flops + others)), 99.8, unit="%"),
        Row("of the time", middle, unit="%"),
    )
    balance = bench.flop_rate() / bench.byte_rate(1e9)
    cause = f"Here arithmetic does {balance:.0f} FLOPs while memory moves a byte; a V100 does 139 in 16 bits."
    return Found(middle, None, rows, cause)


def _share(ops: Any) -> float:
    spent = {op.key: float(op.self_cpu_time_total) for op in ops}
    products = sum(ns for name, ns in spent.items() if name.removeprefix("aten::") in PRODUCTS)
    return 100 * products / sum(spent.values())


class _Layer:
    """Attention over heads and two linear layers, each behind a norm, in ops of their own."""

    def __init__(self, torch: Any) -> None:
        self.torch, nn = torch, torch.nn
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def __call__(self, x: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * (WIDTH / HEADS) ** -0.5).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(self.torch.nn.functional.gelu(self.up(self.second(x))))


EXPERIMENT = Experiment(
    number=2, chapter="time", title="Products: share of the FLOPs and share of the time",
    claim="Matrix products have 99.8 % of a transformer's FLOPs and 61 % of its time; norms and pointwise ops have "
    "the rest of the time with hardly any FLOPs.",
    source="Ivanov et al., Data Movement Is All You Need (2021), table 1, BERT on a V100",
    published="99.80 % of the FLOPs, 61.0 % of the run time",
    factor="share of the time of an encoder layer, forward and backward, that goes into products",
    reproduced=(50.0, 72.0), unit="%",
    why="A product of n x n matrices does n FLOPs for each number that it reads; a pointwise op does one. A GPU's "
    "arithmetic is so far ahead of its memory that pointwise ops, with a thousandth of the FLOPs, take as long as "
    "products do. A CPU's arithmetic is slower beside its memory, so products take more of the time there, unless "
    "bf16 units make them fast.",
    measure=measure, seconds=10.0,
)  # fmt: skip
