"""5: two pointwise ops in a row read and write memory twice; as one kernel, once."""

from __future__ import annotations

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Found, Row


def measure(bench: Bench) -> Found:
    """On one tensor that no cache holds: eager, and compiled to one loop; one cosine alone both ways."""
    torch = bench.torch
    x = torch.rand(bench.size(1 << 25, 1 << 12))
    once, twice = torch.compile(lambda x: x.cos()), torch.compile(lambda x: x.cos().cos())
    once(x)
    twice(x)
    factor = bench.pair(lambda: x.cos().cos(), lambda: twice(x), of=3)
    eager, alone = bench.time(lambda: x.cos(), of=3), bench.time(lambda: once(x), of=3)
    num_bytes = 2.0 * 4 * x.numel()
    floor = 1e9 * num_bytes / bench.byte_rate(num_bytes)
    bound = eager.value < 2 * floor
    cause = "" if bound else (
        f"A cosine takes {eager.value / floor:.0f} times as long as its bytes: arithmetic, which both do twice. The "
        f"gain is that of the compiler's cosine ({eager.value / alone.value:.1f} times as fast), not of fewer trips."
    )  # fmt: skip
    rows = (Row("x.cos(), eager", eager, floor, unit="ns"), Row("x.cos(), compiled", alone, floor, unit="ns"))
    return Found(factor, 2.0 if bound else None, rows, cause)


EXPERIMENT = Experiment(
    number=5, chapter="time", title="x.cos().cos(): eager against one kernel",
    claim="A pointwise op costs its memory traffic; two of them fused take one trip instead of two: half the time.",
    source="Horace He, Making Deep Learning Go Brrrr From First Principles (2022)",
    published="2x on an A100 (no table in the text)",
    factor="time of eager over time of compiled, 2^25 elements of fp32",
    reproduced=(1.6, 2.6),
    why="Both versions compute the same cosines. Eager writes the first result to memory and reads it back: 16 "
    "bytes per element instead of 8. That halves the time only where bytes are what it waits for: on a GPU. On a "
    "few cores a cosine of some 20 instructions takes longer than its trip to memory, so fusing alone gains little.",
    measure=measure, finding=("swish_by_hand", "BRR201"), needs=("torch", "compiler"), seconds=15.0,
)  # fmt: skip
