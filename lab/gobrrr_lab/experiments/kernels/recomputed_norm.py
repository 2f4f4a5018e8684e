"""31: convolution and batch norm computed again in backward: bytes saved against time paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """Blocks of convolution, norm and ReLU: bytes that are kept for backward, and the step, with and without."""
    torch = bench.torch
    nn, width = torch.nn, bench.size(32, 4)
    pairs = [
        (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)) for _ in range(bench.size(6, 2))
    ]
    blocks = [nn.Sequential(*pair) for pair in pairs]
    x = torch.rand(bench.size(8, 2), width, 56, 56)

    def plain(x: Any) -> Any:
        for block in blocks:
            x = block(x).relu()
        return x.sum()

    def again(x: Any) -> Any:
        for block in blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).relu()
        return x.sum()

    kept = [_kept(torch, way, x) for way in (plain, again)]
    paid = bench.pair(lambda: again(x).backward(), lambda: plain(x).backward())
    rows = (
        Row("kept, plain", Figure.exact(kept[0]), unit="B"),
        Row("kept, computed again", Figure.exact(kept[1]), unit="B"),
        Row("step, computed again over plain", paid, 4 / 3, unit="x"),
    )
    return Found(Figure.exact(kept[0] / kept[1]), 2.0, rows)


def _kept(torch: Any, way: Callable[[Any], Any], x: Any) -> float:
    """Bytes of what autograd packs, each storage once."""
    held: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = way(x)
    del loss
    return float(sum(held.values()))


EXPERIMENT = Experiment(
    number=31, chapter="kernels", title="Convolution and batch norm computed again in backward",
    claim="A convolution and its norm as one function keep the convolution's input alone, which the block before "
    "made anyway; its output is computed again in backward. That saves nearly half of the activations.",
    source="course on efficient deep learning; PyTorch tutorial on fusing convolution and batch norm",
    published="2.68 GB of memory become 1.56 (1.72 times less), a step of the same length",
    factor="bytes kept for backward, plain over computed again, six blocks of convolution, norm, ReLU",
    reproduced=(1.4, 2.1),
    why="Plain training keeps the convolution's output, from which the norm's backward is computed, and the ReLU's "
    "output, which is the next convolution's input. Of these two the first can be had again from the input by one "
    "more convolution. The price is that convolution, some third of the step where convolutions are all of it.",
    measure=measure, seconds=10.0,
)  # fmt: skip
