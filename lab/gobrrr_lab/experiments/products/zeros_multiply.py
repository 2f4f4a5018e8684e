"""16: do zeros multiply faster?"""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row


def measure(bench: Bench) -> Found:
    """One product of random numbers, of zeros, and of numbers too small for a normal float."""
    torch = bench.torch
    size = bench.size(2048, 16)
    random, zeros = torch.randn(size, size), torch.zeros(size, size)
    factor = bench.pair(lambda: random @ random, lambda: zeros @ zeros, of=2)
    small = torch.full((size // 4, size // 4), 1e-39)
    ones = torch.ones(size // 4, size // 4)
    slower = bench.pair(lambda: small * ones, lambda: ones * ones, of=2)
    same = factor.low < 1.05
    cause = "What the numbers are does not change this processor's clock: no limit of power is reached." if same else ""
    return Found(factor, 1.0, (Row("denormals over ones, pointwise", slower, unit="x"),), cause)


EXPERIMENT = Experiment(
    number=16, chapter="products", title="Do zeros multiply faster than random numbers?",
    claim="The same product is faster when its numbers are predictable: fewer bits switch, so less power, so a "
    "higher clock.",
    source="Horace He, Strangely, Matrix Multiplications on GPUs Run Faster When Given Predictable Data (2024)",
    published="zeros some 10 to 20 % faster on an A100 that is bound by its power",
    factor="time of a product of random numbers over that of zeros, 2048 x 2048, fp32",
    reproduced=(1.05, 1.4),
    why="A GPU under full load is held at its power limit; bits that do not switch cost less, so its clock rises. "
    "The arithmetic itself takes the same cycles for any number. A server CPU with a fixed clock, or one far from "
    "its limit, shows nothing. What does matter on a CPU are numbers below the smallest normal float, for which its "
    "arithmetic traps into microcode.",
    measure=measure, seconds=10.0,
)  # fmt: skip
