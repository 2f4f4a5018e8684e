"""3: what a second holds: additions of Python, additions of torch, arithmetic of the machine."""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench, ratio
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

ADDS = 10_000  # timed together; proposed: the clock's 50 ns vanish; other counts would settle it


def measure(bench: Bench) -> Found:
    """A loop of Python, a call of torch on one element, and a product as large as this machine likes them."""
    torch = bench.torch
    a, b = torch.ones(1), torch.ones(1)
    size = bench.size(2048, 32)
    x = torch.rand(size, size)
    python, small, product = (bench.time(call, of=3) for call in (_adds, lambda: a + b, lambda: x @ x))
    one = Figure(*(each / ADDS for each in (python.value, python.low, python.high)))
    rows = (
        Row("additions of Python", _rate(one, 1), unit="FLOP/s"),
        Row(
            "additions of torch, one element each", _rate(small, 1), 1e9 / bench.machine.dispatch.median, unit="FLOP/s"
        ),
        Row("a product of matrices", _rate(product, 2.0 * size**3), bench.flop_rate(), unit="FLOP/s"),
    )
    return Found(ratio(small, one), bench.machine.dispatch.median / one.value, rows)


def _adds() -> float:
    x = 0.0
    for _ in range(ADDS):
        x = x + 1.0
    return x


def _rate(ns: Figure, flops: float) -> Figure:
    return Figure(*(1e9 * flops / each for each in (ns.value, ns.high, ns.low)))


EXPERIMENT = Experiment(
    number=3, chapter="time", title="Additions in a second: Python, torch, and the machine",
    claim="While torch starts one op, Python makes a hundred additions; in the time of one of those the device "
    "does millions.",
    source="Horace He, Making Deep Learning Go Brrrr From First Principles (2022)",
    published="32 million additions of Python, 280 thousand of torch, 312 TFLOP/s of an A100: 114 to 1",
    factor="additions that Python makes while torch makes one of one element",
    reproduced=(30.0, 300.0),
    why="Python looks up types and reference counts for each addition; torch looks up the operator, its dtype, its "
    "device and autograd, allocates a tensor and calls a kernel: the price is for the call, not for the numbers in "
    "it. So it vanishes in tensors of a million elements and is everything in tensors of ten. Newer Pythons add "
    "faster, newer versions of torch start ops faster: the ratio moves, the order stays.",
    measure=measure, finding=("small_batch", "BRR301"), seconds=9.0,
)  # fmt: skip
