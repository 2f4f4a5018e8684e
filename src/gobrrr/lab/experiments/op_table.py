"""1: the op table of a network: where does a forward go?"""

from __future__ import annotations

from typing import Any

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row

RUNS, TOLD = 11, 8
PRODUCTS = ("addmm", "mm", "bmm", "mkldnn_convolution", "_slow_conv2d_forward", "cudnn_convolution")
PUBLISHED = {"addmm": 45.6, "mkldnn_convolution": 23.4}


def measure(bench: Bench) -> Found:
    """Self times of a Conformer-like block's forward by torch's profiler: the costliest ops, and products together."""
    torch = bench.torch
    net, x = _Block(torch, bench.size(256, 16)), torch.rand(4, bench.size(200, 8), bench.size(256, 16))
    tables = []
    with torch.no_grad():
        net(x)
        for _ in range(RUNS):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
                net(x)
            tables.append({op.key.removeprefix("aten::"): float(op.self_cpu_time_total) for op in found.key_averages()})
    shares = {name: _over(tables, (name,)) for name in {name for table in tables for name in table}}
    longest = sorted(shares, key=lambda name: -shares[name].value)[:TOLD]
    rows = tuple(Row(name, shares[name], PUBLISHED.get(name), unit="%") for name in longest)
    cause = "" if torch.cuda.is_available() else "There is no device here: the ratios of 7.56 and 8.34 stay unmeasured."
    return Found(_over(tables, PRODUCTS), None, rows, cause)


def _over(tables: list[dict[str, float]], names: tuple[str, ...]) -> Figure:
    """Their share of all, per cent: the median of the runs; second and last but one hold it in 98.8 % of cases."""
    shares = sorted(100 * sum(table.get(name, 0.0) for name in names) / sum(table.values()) for table in tables)
    return Figure(shares[len(shares) // 2], shares[1], shares[-2])


class _Block:
    """Half a feed-forward, attention, a depthwise convolution, half a feed-forward, each behind a norm."""

    def __init__(self, torch: Any, width: int) -> None:
        nn = torch.nn
        self._first, self._last = (
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self._qkv, self._out, self._heads = nn.Linear(width, 3 * width), nn.Linear(width, width), 4
        inner, outer = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        depthwise = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self._conv = nn.Sequential(inner, nn.GLU(1), depthwise, nn.BatchNorm1d(width), nn.SiLU(), outer).eval()

    def __call__(self, x: Any) -> Any:
        x = x + 0.5 * self._first(x)
        q, k, v = self._qkv(x).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self._out((scores @ v).transpose(1, 2).flatten(2))
        x = x + self._conv(x.transpose(1, 2)).transpose(1, 2)
        return x + 0.5 * self._last(x)


EXPERIMENT = Experiment(
    number=1, chapter="time", title="The op table of a Conformer-like block",
    claim="In the forward of a Conformer on a CPU products and convolutions have some 70 % of the time; the rest "
    "is copies, norms and pointwise ops.",
    source="course on efficient deep learning, tables of torch.profiler on CPU and GPU",
    published="addmm 45.6 % (9,280 calls of 265 us), convolutions 23.4 %; GPU over CPU 7.56 (the table's own "
    "figures give 7.90) and 8.34",
    factor="share of the self time of a block's forward in products and convolutions",
    reproduced=(55.0, 85.0), unit="%",
    why="Self time leaves out the ops that an op calls, so shares add up. Products of the feed-forward and "
    "attention carry the arithmetic. Which op stands beside them is a matter of the library: copies for layouts it "
    "wants, norms and activations that read and write memory. `gobrrr compare` holds two such tables, of a CPU and "
    "a GPU, against each other op by op.",
    measure=measure, seconds=5.0,
)  # fmt: skip
