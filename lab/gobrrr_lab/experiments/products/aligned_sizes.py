"""14: a vocabulary of 50304 instead of 50257."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

ROWS, WIDTH = 512, 256
FEW = 64
"""Rows that squares are multiplied with: where bf16 has no units a square times a square takes 50 ms."""
BEST, MULTIPLES = 512, (1, 2, 4, 8, 16, 32, 64, 128)
"""512 less one of these is a multiple of it and of no larger power of two."""


def measure(bench: Bench) -> Found:
    """Logits of an odd and of a rounded vocabulary; a few rows times squares a little below 512, of which 1 to 128
    is the largest power of two that divides them, in fp32 and bf16, per FLOP."""
    torch = bench.torch
    odd, even = (50257, 50304) if not bench.tiny else (57, 64)
    x = torch.rand(bench.size(ROWS, 4), WIDTH)
    one, two = torch.rand(WIDTH, odd), torch.rand(WIDTH, even)
    of = 4 + len(MULTIPLES) * 2
    factor = bench.pair(lambda: x @ one, lambda: x @ two, of=5)
    rows = [
        Row(
            f"{BEST - n} (x {n}) beside {BEST}, {name}",
            _per_flop(bench, n, getattr(torch, name), of),
            1.0,
            n,
            "x",
            name,
        )
        for name in ("float32", "bfloat16")
        for n in MULTIPLES
    ]
    return Found(factor, odd / even, tuple(rows))


def _per_flop(bench: Bench, multiple: int, dtype: Any, of: int) -> Figure:
    """How much longer a FLOP takes than with 512."""
    torch, best = bench.torch, bench.size(BEST, 256)
    size = best - multiple
    rows = bench.size(FEW, 4)
    a, b = (torch.rand(n, n).to(dtype) for n in (size, best))
    x, y = (torch.rand(rows, n).to(dtype) for n in (size, best))
    found, work = bench.pair(lambda: x @ a, lambda: y @ b, of=of), (best / size) ** 2
    return Figure(*(each * work for each in (found.value, found.low, found.high)))


EXPERIMENT = Experiment(
    number=14, chapter="products", title="A vocabulary of 50257 or of 50304: do odd sizes cost?",
    claim="Sizes that are multiples of 8, 64 or 128 suit matrix units: padding GPT-2's vocabulary from 50257 to "
    "50304 makes it some 25 % faster.",
    source="Karpathy, nanoGPT (2023); course EDLS, week 2 (512 against 511 and 8192 against 8191)",
    published="some 25 % for the vocabulary on an A100; 512 beside 511: 1.68, 1.65, 0.82 (2024) times",
    factor="time of the logits with 50257 over that with 50304, fp32",
    reproduced=(1.1, 1.6),
    why="Matrix units take tiles; rows that do not begin at an aligned address cannot be loaded in wide pieces, "
    "and the library falls back to a slower kernel. CPU libraries copy tiles into buffers of their own first, where "
    "every row is aligned, so an odd size costs them an edge of a tile and no more. The published figures flip "
    "between library versions.",
    measure=measure, axis="largest power of two in the size", seconds=30.0,
)  # fmt: skip
