"""21: eager, exported, compiled: a step's time, the first call's, and what a branch on data costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.branches import measured_branches

OF = 7
"""Parts of the time."""


def measure(bench: Bench) -> Found:
    """Inference of a small convolutional net in three forms and what each took to make; then a chain with branches on
    its own values: in eager, compiled around them, with torch.cond, and without any."""
    torch = bench.torch
    branches = measured_branches(bench, OF)  # first: asking for breaks forgets what was compiled
    nn, width = torch.nn, bench.size(32, 4)
    blocks = [
        part
        for _ in range(bench.size(6, 1))
        for part in (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
    ]
    net, x = nn.Sequential(*blocks).eval(), torch.rand(bench.size(8, 1), width, 56, 56)
    with torch.no_grad():
        compiled, first = _timed(lambda: _called(torch.compile(net, dynamic=False), x))
        exported, traced = _timed(lambda: torch.export.export(net, (x,)).module())
        if not all(torch.allclose(way(x), net(x), atol=1e-4) for way in (compiled, exported)):
            raise GobrrrError("the graph computes something else")
        factor = bench.pair(lambda: net(x), lambda: compiled(x), of=OF)
        plain = bench.time(lambda: net(x), of=OF)
        graph = bench.pair(lambda: net(x), lambda: exported(x), of=OF)
    saved = plain.value * (1 - 1 / factor.value)
    rows = [
        Row("eager step", plain, unit="ns"),
        Row("first compiled call", Figure.exact(first), unit="ns"),
        Row("export", Figure.exact(traced), unit="ns"),
        Row("eager over exported", graph, 1.0, unit="x"),
    ]
    if saved > 0:
        rows.append(Row("steps until compiling has paid", Figure.exact(first / saved)))
    return Found(factor, None, (*rows, *branches))


def _called(compiled: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    compiled(x)
    return compiled


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter_ns()
    return make(), float(time.perf_counter_ns() - began)


EXPERIMENT = Experiment(
    number=21, chapter="derivatives", title="Dynamic and static graphs: eager, exported, compiled",
    claim="A graph that is known beforehand can be compiled to fewer and better kernels: the step gets faster "
    "after a first call of seconds to minutes. What hangs on values is not known beforehand.",
    source="courses Efficient-DL-Models (2024) and YDS (2026): torch.compile on DenseNet121, batch 16",
    published="1.82x in inference (33.2 to 18.2 ms, 60 s first call) in 2024; 0.88x (82 s) on another GPU in 2026",
    factor="eager step over compiled step, convolutions with batch norm and ReLU, inference",
    reproduced=(1.1, 4.0),
    why="The compiler joins what is pointwise with its neighbours and calls the library for the convolutions, "
    "which take most of the time in both. So a net of large convolutions gains little, a net of many small ops a "
    "lot. Exporting alone runs the same kernels from a fixed list: hardly faster. An `if` on values breaks the graph "
    "at each place, in a loop it leaves the whole function to Python; export refuses both. torch.cond "
    "keeps both ways in one graph, at the price of a call for each and of no joining across either.",
    measure=measure, needs=("torch", "compiler"), seconds=20.0,
)  # fmt: skip
