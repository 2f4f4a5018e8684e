"""48: joules of a product in fp32 and in bf16."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

COUNTER = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
SECONDS = 2.0
"""Seconds of products in each format; proposed: long beside the counter's steps; repeats' spread would settle it."""


def measure(bench: Bench) -> Found:
    """The processor package's own counter over two seconds of products in each format."""
    torch = bench.torch
    size = bench.size(2048, 16)
    spent = {}
    for name in ("float32", "bfloat16"):
        x = torch.rand(size, size).to(getattr(torch, name))
        spent[name] = _joules(x, 0.05 if bench.tiny else SECONDS) / (2.0 * size**3)
    rows = tuple(Row(f"{name}: pJ per FLOP", Figure.exact(1e12 * each)) for name, each in spent.items())
    return Found(Figure.exact(spent["float32"] / spent["bfloat16"]), None, rows)


def _joules(x: Any, seconds: float) -> float:
    """Return the joules of one product, as the mean over so many seconds of them."""
    began, ends, count = int(COUNTER.read_text()), time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        x @ x
        count += 1
    used = int(COUNTER.read_text()) - began
    if used <= 0:
        raise GobrrrError("the counter of joules stood still or began anew")
    return used / 1e6 / count


EXPERIMENT = Experiment(
    number=48, chapter="cost", title="Joules of a product in fp32 and in 16 bits",
    claim="A product in 16 bits costs a fraction of the energy: fewer bits are moved and multiplied, and it ends "
    "sooner.",
    source="course YDS, week 5; Horowitz, Computing's energy problem (2014)",
    published="0.22 against 3.5 J (ideal figures): 16 times",
    factor="joules of a product in fp32 over one in bf16, 2048 x 2048, processor package",
    reproduced=(1.5, 20.0),
    why="Most of a chip's power is there whether it multiplies or not, so what ends sooner costs less. Where 16 "
    "bits have no units of their own, they save nothing. Virtual machines show no counter: nothing is estimated in "
    "its place.",
    measure=measure, needs=("torch", "energy"), seconds=8.0,
)  # fmt: skip
