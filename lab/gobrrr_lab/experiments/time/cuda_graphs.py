"""8: launches cost, and a graph launches once."""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found

OPS = 2000  # kernels in a row, those of the claim


def measure(bench: Bench) -> Found:
    """2,000 additions of tiny tensors on the device, one by one and as a captured graph."""
    torch = bench.torch
    x = torch.ones(8, device="cuda")

    def ops() -> None:
        for _ in range(bench.size(OPS, 10)):
            x.add_(1.0)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ops()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops()
    return Found(bench.pair(ops, graph.replay), None)


EXPERIMENT = Experiment(
    number=8, chapter="time", title="Tiny kernels: launched one by one, or as a graph",
    claim="A graph of 2,000 tiny kernels is launched in one call: several times as fast as 2,000 launches.",
    source="course EDLS, week 1 (2024 to 2026)",
    published="19.7 to 3.0 ms, 20.1 to 2.7, 19.2 to 2.74: 6.6 to 7.4 times",
    factor="time of 2,000 launches over a replayed graph of them",
    reproduced=(3.0, 15.0),
    why="Each launch costs the host some 5 us with torch on top; the kernel itself runs for 2. A graph is a list "
    "that the device walks alone. Its tensors must stay where they are, and nothing in it may depend on the host.",
    measure=measure, needs=("torch", "device"), finding=None, seconds=8.0,
)  # fmt: skip
