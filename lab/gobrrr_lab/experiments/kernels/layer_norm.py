"""28: LayerNorm in passes, and in one; what cancels in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

EPS, OFFSET = 1e-5, 300.0
"""The offset is what makes E[x^2] - E[x]^2 cancel."""


def measure(bench: Bench) -> Found:
    """Forward and backward of LayerNorm written out, against torch's own; variances of shifted rows against float64."""
    torch = bench.torch
    x = torch.randn(bench.size(4096, 4), bench.size(1024, 8)).requires_grad_()
    if not torch.allclose(_by_hand(x), torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS), atol=1e-4):
        raise GobrrrError("LayerNorm by hand differs from torch's")
    slope, compiled = torch.rand_like(x), torch.compile(_by_hand, dynamic=False)
    factor = bench.pair(lambda: _by_hand(x).backward(slope), lambda: _native(torch, x).backward(slope), of=5)
    ways: dict[str, Callable[[Any], Any]] = {
        "native": lambda x: _native(torch, x),
        "compiled": compiled,
        "backward rearranged": rearranged(torch),
    }
    if not all(_agree(torch, way, x, slope) for way in ways.values()):
        raise GobrrrError("gradients of LayerNorm differ")
    ahead = bench.pair(lambda: _by_hand(x.detach()), lambda: _native(torch, x.detach()), of=5)
    rows = [Row("forward alone, by hand over native", ahead, unit="x")]
    for name in ("compiled", "backward rearranged"):
        way = ways[name]
        both = bench.pair(lambda: _by_hand(x).backward(slope), lambda w=way: w(x).backward(slope), of=5)  # type: ignore[misc]
        rows.append(Row(f"forward and backward, by hand over {name}", both, unit="x"))
    shifted = x.detach() + OFFSET
    exact = shifted.double().var(-1, correction=0)
    variances = {
        "two passes": shifted.var(-1, correction=0),
        "Welford, one pass": welford(torch, shifted),
        "sums of x and x^2": (shifted**2).mean(-1) - shifted.mean(-1) ** 2,
    }
    rows += [
        Row(f"error of the variance, {name}", Figure.exact(float(((v.double() - exact) / exact).abs().max())))
        for name, v in variances.items()
    ]
    return Found(factor, None, tuple(rows))


def welford(torch: Any, x: Any) -> Any:
    """Variance of each row in one pass: what a number adds is its distance from the mean before times that from the
    mean after (Welford 1962)."""
    mean, total = torch.zeros(len(x), dtype=x.dtype), torch.zeros(len(x), dtype=x.dtype)
    for count, column in enumerate(x.unbind(1), 1):
        before = column - mean
        mean = mean + before / count
        total = total + before * (column - mean)
    return total / x.shape[1]


def rearranged(torch: Any) -> Callable[[Any], Any]:
    """Backward in one formula from y and 1 / sd alone: dx = (dy - mean(dy) - y mean(dy y)) / sd. Both means can be
    summed in one pass, where autograd's chain waits for one before the other."""

    class Norm(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y, _, inverse = torch.native_layer_norm(x, x.shape[-1:], None, None, EPS)
            ctx.save_for_backward(y, inverse)
            return y

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            y, inverse = ctx.saved_tensors
            return (slope - slope.mean(-1, keepdim=True) - y * (slope * y).mean(-1, keepdim=True)) * inverse

    return Norm.apply  # type: ignore[no-any-return]


def _agree(torch: Any, way: Callable[[Any], Any], x: Any, slope: Any) -> bool:
    found, expected = (torch.autograd.grad(each(x), x, slope)[0] for each in (way, _by_hand))
    return bool(torch.allclose(found, expected, atol=1e-4))


def _by_hand(x: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt()


def _native(torch: Any, x: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)


EXPERIMENT = Experiment(
    number=28, chapter="kernels", title="LayerNorm: two passes, one, native, compiled; and what cancels",
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
    measure=measure, finding=("norm_by_hand", "BRR201"), needs=("torch", "compiler"), seconds=15.0,
)  # fmt: skip
