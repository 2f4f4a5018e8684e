"""27: an optimizer's update: a loop over tensors, many at once, or fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Found, Row

OPS_OF_A_TENSOR = 9
"""Ops of Adam's step for each tensor in the loop."""


def measure(bench: Bench) -> Found:
    """Adam over 200 small tensors and over 4 large ones, three ways."""
    small, large = (bench.size(200, 4), 4_096), (4, bench.size(1 << 20, 1 << 8))
    ways: dict[str, dict[str, bool]] = {
        "loop": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }
    steps = {(shape, name): _step(bench.torch, *shape, **how) for shape in (small, large) for name, how in ways.items()}
    factor = bench.pair(steps[small, "loop"], steps[small, "fused"], of=7)
    rows = [
        Row(f"{count} tensors of {size:,}, {name}", bench.time(step, of=7), unit="ns")
        for ((count, size), name), step in steps.items()
    ]
    loop = small[0] * OPS_OF_A_TENSOR * bench.machine.dispatch.median
    moved = 4.0 * 7 * small[0] * small[1]
    return Found(
        factor, loop / max(1e9 * moved / bench.byte_rate(moved), 10 * bench.machine.dispatch.median), tuple(rows)
    )


def _step(torch: Any, count: int, size: int, **how: bool) -> Callable[[], Any]:
    tensors = [torch.rand(size).requires_grad_() for _ in range(count)]
    for tensor in tensors:
        tensor.grad = torch.rand(size)
    return torch.optim.Adam(tensors, **how).step  # type: ignore[no-any-return]


EXPERIMENT = Experiment(
    number=27, chapter="kernels", title="Adam: a loop over tensors, many at once, fused",
    claim="A fused optimizer passes over each tensor once, in one call: with many tensors the update takes a "
    "fraction of the loop's time.",
    source="course Efficient-DL-Models (2024), fused Adam and mixed precision on a transformer",
    published="26 to 31 % less per epoch together with mixed precision; the update alone is not given",
    factor="time of Adam's loop over that of fused Adam, 200 tensors of 4,096 numbers",
    reproduced=(1.3, 100.0),
    why="The loop calls nine ops for each tensor: small tensors cost calls, large ones nine trips to memory "
    "instead of one. foreach makes lists of the calls, which on a GPU become one launch; on a CPU it walks the "
    "list, and gains less. fused reads weight, gradient and both moments once and writes three of them. An "
    "optimizer is a small part of a step that computes a lot.",
    measure=measure, finding=("loop_optimizer", "BRR208"), seconds=14.0,
)  # fmt: skip
