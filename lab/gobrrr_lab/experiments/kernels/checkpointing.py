"""34: activations computed again: bytes and time by policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gobrrr_lab.experiments.kernels.recomputed_norm import _kept
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """A stack of wide layers, of which every block, every second, none, or all but its products is
    computed again in backward."""
    torch = bench.torch
    nn, width = torch.nn, bench.size(512, 8)
    blocks = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(bench.size(8, 2))
    ]
    x = torch.rand(bench.size(256, 4), width).requires_grad_()

    def run(every: int) -> Callable[[Any], Any]:
        def way(x: Any) -> Any:
            for number, block in enumerate(blocks):
                again = every and number % every == 0
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if again else block(x)
            return x.sum()

        return way

    context = partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])

    def selective(x: Any) -> Any:
        for block in blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=context)
        return x.sum()

    plain, half, all_of_them = run(0), run(2), run(1)
    factor = bench.pair(lambda: all_of_them(x).backward(), lambda: plain(x).backward(), of=3)
    middle = bench.pair(lambda: half(x).backward(), lambda: plain(x).backward(), of=3)
    cheap = bench.pair(lambda: selective(x).backward(), lambda: plain(x).backward(), of=3)
    ways = {"none": plain, "all but products": selective, "every second block": half, "every block": all_of_them}
    products = {"all but products": 4.0 * len(blocks) * x.shape[0] * 4 * width}  # its cache, which no hook sees
    rows = [
        Row(f"kept, {name} again", Figure.exact(_kept(torch, way, x) + products.get(name, 0.0)), unit="B")
        for name, way in ways.items()
    ]
    return Found(factor, 4 / 3, (*rows, Row("step, every second block", middle, 7 / 6, unit="x"),
                                  Row("step, all but products", cheap, 1.0, unit="x")))  # fmt: skip


EXPERIMENT = Experiment(
    number=34, chapter="kernels", title="Checkpointing: bytes saved against time paid",
    claim="Computing a block's activations again in backward costs one more forward, a third of the step, and "
    "saves nearly all that the block would keep.",
    source="Chen et al., Training Deep Nets with Sublinear Memory Cost (2016)",
    published="one more forward: 4/3 of the time",
    factor="step with every block computed again over the plain step",
    reproduced=(1.15, 1.5),
    why="Backward takes about two forwards: one product for the input's gradient, one for the weight's. A third "
    "one makes 4/3. What is kept is each block's input. Policies that compute again only what is cheap (norms, "
    "activations, attention) save most of the bytes for a few per cent.",
    measure=measure, finding=("checkpointed_blocks", "BRR111"), seconds=12.0,
)  # fmt: skip
