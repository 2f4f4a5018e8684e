"""28: LayerNorm in passes, and in one; what cancels in it."""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row

EPS, OFFSET = 1e-5, 300.0
"""The offset is what makes E[x^2] - E[x]^2 cancel."""


def measure(bench: Bench) -> Found:
    """Forward and backward of LayerNorm written out, against torch's own; variances of shifted rows against float64."""
    torch = bench.torch
    x = torch.randn(bench.size(4096, 4), bench.size(1024, 8)).requires_grad_()
    if not torch.allclose(_by_hand(x), torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS), atol=1e-4):
        raise GobrrrError("LayerNorm by hand differs from torch's")
    slope = torch.rand_like(x)
    factor = bench.pair(lambda: _by_hand(x).backward(slope), lambda: _native(torch, x).backward(slope), of=3)
    ahead = bench.pair(lambda: _by_hand(x.detach()), lambda: _native(torch, x.detach()), of=3)
    shifted = x.detach() + OFFSET
    exact = shifted.double().var(-1, correction=0)
    ways = {
        "two passes": shifted.var(-1, correction=0),
        "sums of x and x^2": (shifted**2).mean(-1) - shifted.mean(-1) ** 2,
    }
    rows = [Row("forward alone, by hand over native", ahead, unit="x")]
    rows += [
        Row(f"error of the variance, {name}", Figure.exact(float(((v.double() - exact) / exact).abs().max())))
        for name, v in ways.items()
    ]
    return Found(factor, None, tuple(rows))


def _by_hand(x: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt()


def _native(torch: Any, x: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)


EXPERIMENT = Experiment(
    number=28, chapter="kernels", title="LayerNorm: passes over memory, and what cancels",
    claim="A norm as one kernel reads its input once and sums mean and variance together (Welford, or independent "
    "sums): several times as fast as the formula written out.",
    source="LightSeq2 (2021), LayerNorm; NVIDIA Apex",
    published="fused LayerNorm some 2 to 4 times as fast as ops of a framework on a V100",
    factor="forward and backward by hand over torch's layer_norm, 4096 rows of 1024",
    reproduced=(1.5, 8.0),
    why="Written out it is six ops forward and a dozen backward, each a trip to memory. In one kernel a row lies "
    "in registers or a cache between its passes. E[x^2] - E[x]^2 needs one pass only, and is wrong where the mean "
    "is large beside the spread: both sums agree in their leading digits, which cancel. Welford's update, or "
    "subtracting a first guess of the mean, keeps them.",
    measure=measure, finding=("norm_by_hand", "BRR201"), seconds=12.0,
)  # fmt: skip
