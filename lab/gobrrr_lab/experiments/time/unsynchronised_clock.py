"""7: timing without synchronisation lies."""

from __future__ import annotations

import time

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """A large product on the device, timed until its call returns and until it is done."""
    torch = bench.torch
    x = torch.rand(bench.size(4096, 64), bench.size(4096, 64), device="cuda")
    x @ x
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    x @ x
    returned = time.perf_counter_ns() - began
    torch.cuda.synchronize()
    done = time.perf_counter_ns() - began
    rows = (
        Row("until the call returns", Figure.exact(returned), unit="ns"),
        Row("until it is done", Figure.exact(done), unit="ns"),
    )
    return Found(Figure.exact(done / returned), None, rows)


EXPERIMENT = Experiment(
    number=7, chapter="time", title="Timing without synchronisation lies",
    claim="A call on a device returns when its work is queued: a clock around it measures the launch.",
    source="course EDLS, week 1: batched products",
    published="20.9 and 25.7 us without, 505 and 189 us with synchronisation",
    factor="time until a product of 4096 x 4096 is done over the time until its call returns",
    reproduced=(5.0, 1000.0),
    why="The host runs ahead of the device. Synchronise before and after, or use events of the device's own clock. "
    "The first call also loads the library and chooses a kernel.",
    measure=measure, needs=("torch", "device"), seconds=5.0,
)  # fmt: skip
