"""33: bias, activation, dropout and residual as one kernel."""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found

PASSES = 11
"""Trips of the whole tensor in eager: bias 2, GELU 2, mask drawn 1, mask used 3, residual 3; fused: 3."""
FUSED = 3  # trips of the whole tensor in one fused kernel


def measure(bench: Bench) -> Found:
    """dropout(gelu(x + bias)) + residual, eager against compiled, forward."""
    torch = bench.torch
    functional = torch.nn.functional
    width = bench.size(2048, 16)
    x, residual = torch.randn(2, bench.size(4096, 8), width).unbind()
    bias = torch.randn(width)

    def chain() -> object:
        return functional.dropout(functional.gelu(x + bias), 0.1) + residual

    compiled = torch.compile(chain)
    compiled()
    return Found(bench.pair(chain, lambda: compiled()), PASSES / FUSED)


EXPERIMENT = Experiment(
    number=33, chapter="kernels", title="Bias, activation, dropout and residual as one kernel",
    claim="What follows a product (bias, activation, dropout, residual) can be one kernel instead of four: the "
    "tensor passes memory three times, not eleven.",
    source="LightSeq2 (2021), fused kernels of a transformer layer; course on efficient deep learning",
    published="training 1.4 to 3.5 times as fast with all of LightSeq2's kernels on V100 and A100",
    factor="time of eager over compiled, dropout(gelu(x + bias)) + residual, 8 million numbers, forward",
    reproduced=(1.5, 6.0),
    why="Each of the ops reads its input from memory and writes its output back. In one loop the numbers stay in "
    "registers. On a CPU torch draws dropout's mask on one thread, which compiled code does on all of them: the "
    "gain is larger than that of the trips alone.",
    measure=measure, finding=("epilogue_by_hand", "BRR201"), needs=("torch", "compiler"), seconds=10.0,
)  # fmt: skip
