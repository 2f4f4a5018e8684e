"""1: the op table of a network: where does a forward go?"""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.blocks import Block, residual_net

RUNS, TOLD = 11, 6
PRODUCTS = ("addmm", "mm", "bmm", "mkldnn_convolution", "_slow_conv2d_forward", "cudnn_convolution")
ENCLOSING = ("linear", "convolution", "matmul", "layer_norm", "batch_norm", "softmax", "silu", "relu", "add")
"""Ops that call others: the same by name on a host and a device, where mkldnn_convolution is cudnn_convolution."""
RATIOS = {"linear": 7.90, "convolution": 8.34}
"""Published, of the table's own figures: (2335 or 1195 / 3340 * 2432) / (host + device). The text has 7.56, of 2235."""
PUBLISHED = {"addmm": 45.6, "mkldnn_convolution": 23.4}


def measure(bench: Bench) -> Found:
    """Self times of the forward of a Conformer-like block and of a small ResNet by torch's profiler: the costliest ops,
    products together; and with a device, time of each enclosing op on the host over that with it."""
    torch, width = bench.torch, bench.size(256, 16)
    side = bench.size(56, 8)
    nets = {
        "block": (Block(torch, width), torch.rand(4, bench.size(200, 8), width)),
        "ResNet": (residual_net(torch, bench.size(64, 4)), torch.rand(4, 3, side, side)),
    }
    rows, shares = [], {}
    for name, (net, x) in nets.items():
        tables, enclosing = _profiled(torch, net, x)
        own = {op: _over(tables, (op,)) for op in {op for table in tables for op in table}}
        longest = sorted(own, key=lambda op: -own[op].value)[:TOLD]
        said = PUBLISHED if name == "block" else {}
        rows += [Row(f"{name}: {op}", own[op], said.get(op), unit="%") for op in longest]
        shares[name] = _over(tables, PRODUCTS)
        rows.append(Row(f"{name}: products and convolutions", shares[name], unit="%"))
        if torch.cuda.is_available():
            there = _profiled(torch, net.to("cuda"), x.to("cuda"))[1]
            rows += [
                Row(
                    f"{name}: {op}, host over device", Figure.exact(enclosing[op] / there[op]), RATIOS.get(op), unit="x"
                )
                for op in ENCLOSING
                if there.get(op) and op in enclosing
            ]
    cause = "" if torch.cuda.is_available() else "There is no device here: the ratios of 7.56 and 8.34 stay unmeasured."
    return Found(shares["block"], None, tuple(rows), cause)


def _profiled(torch: Any, net: Any, x: Any) -> tuple[list[dict[str, float]], dict[str, float]]:
    """(self times of each run, times of enclosing ops with all that they call on host and device, of all runs)."""
    kinds = torch.profiler.ProfilerActivity
    activities, tables = [kinds.CPU, *([kinds.CUDA] if x.is_cuda else [])], []
    enclosing: dict[str, float] = {}
    with torch.no_grad():
        net(x)
        for _ in range(RUNS):
            with torch.profiler.profile(activities=activities) as found:
                net(x)
            events = {op.key.removeprefix("aten::"): op for op in found.key_averages()}
            tables.append({name: float(op.self_cpu_time_total) for name, op in events.items()})
            for name in ENCLOSING:
                if name in events:
                    spent = events[name].cpu_time_total + events[name].device_time_total
                    enclosing[name] = enclosing.get(name, 0.0) + float(spent)
    return tables, enclosing


def _over(tables: list[dict[str, float]], names: tuple[str, ...]) -> Figure:
    """Their share of all, per cent: the median of the runs; second and last but one hold it in 98.8 % of cases."""
    shares = sorted(100 * sum(table.get(name, 0.0) for name in names) / sum(table.values()) for table in tables)
    return Figure(shares[len(shares) // 2], shares[1], shares[-2])


EXPERIMENT = Experiment(
    number=1, chapter="time", title="The op tables of a Conformer-like block and of a ResNet",
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
