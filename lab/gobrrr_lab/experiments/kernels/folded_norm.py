"""30: a batch norm folded into the convolution before it."""

from __future__ import annotations

import copy
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.blocks import residual_net


def measure(bench: Bench) -> Found:
    """Inference of convolutions and linear layers with a norm behind, and with it folded in, and of a ResNet whose
    norms torch.fx finds; all must agree."""
    torch = bench.torch
    nn, width = torch.nn, bench.size(64, 4)
    image, rows = torch.rand(bench.size(8, 2), width, 56, 56), torch.rand(bench.size(4096, 8), 256)
    pairs = {
        "convolution": (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), image),
        "linear": (nn.Linear(256, 256), nn.BatchNorm1d(256), rows),
    }
    found = {}
    with torch.no_grad():
        for name, (layer, norm, x) in pairs.items():
            norm.running_mean.uniform_(), norm.running_var.uniform_(0.5, 2)
            both, alone = nn.Sequential(layer, norm).eval(), folded(torch, layer, norm.eval())
            if not torch.allclose(both(x), alone(x), atol=1e-4):
                raise GobrrrError(f"the folded {name} differs")
            found[name] = bench.pair(lambda both=both, x=x: both(x), lambda alone=alone, x=x: alone(x), of=3)  # type: ignore[misc]
        found["net by torch.fx"] = _through_fx(bench, image)
    num_bytes = 8.0 * image.numel()
    product = 1e9 * 2.0 * image.numel() * width * 9 / bench.flop_rate()
    norm_ns = 1e9 * num_bytes / bench.byte_rate(num_bytes) + bench.fresh_ns(num_bytes / 2)
    rows_told = (Row("linear layer", found["linear"], unit="x"),
                 Row("ResNet, norms found by torch.fx", found["net by torch.fx"], unit="x"))  # fmt: skip
    return Found(found["convolution"], 1 + norm_ns / product, rows_told)


def _through_fx(bench: Bench, image: Any) -> Figure:
    torch, width = bench.torch, image.shape[1]
    net = residual_net(torch, width)
    for norm in (each for each in net.modules() if isinstance(each, torch.nn.BatchNorm2d)):
        norm.running_mean.normal_(0, 0.1), norm.running_var.uniform_(0.05, 0.2)  # or every ReLU is off
    x, short = image[:, :3].contiguous(), fused(torch, net)
    if not torch.allclose(net(x), short(x), atol=1e-4):
        raise GobrrrError("the net with folded norms differs")
    return bench.pair(lambda: net(x), lambda: short(x), of=3)


def fused(torch: Any, net: Any) -> Any:
    """A copy of any module that torch.fx can trace, each norm folded into the layer before it where that layer's output
    goes nowhere else and the layer is called once."""
    traced = torch.fx.symbolic_trace(copy.deepcopy(net).eval())
    nn, parts = torch.nn, dict(traced.named_modules())
    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    for node in list(traced.graph.nodes):
        norm = parts.get(node.target) if node.op == "call_module" else None
        before: Any = node.args[0] if node.args else None
        if not isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)) or getattr(before, "op", "") != "call_module":
            continue
        layer = parts[before.target]
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and len(before.users) == 1 == calls.count(before.target):
            with torch.no_grad():
                traced.set_submodule(before.target, folded(torch, layer, norm))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def folded(torch: Any, layer: Any, norm: Any) -> Any:
    """A layer that computes both: w' = w s, b' = (b - mean) s + beta, with s = gamma / sqrt(var + eps)."""
    made = copy.deepcopy(layer)
    if made.bias is None:
        made.bias = torch.nn.Parameter(torch.zeros_like(norm.bias))
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    made.weight.copy_(layer.weight * scale.reshape(-1, *[1] * (layer.weight.dim() - 1)))
    made.bias.copy_((made.bias - norm.running_mean) * scale + norm.bias)
    return made


EXPERIMENT = Experiment(
    number=30, chapter="kernels", title="A batch norm folded into the layer before it",
    claim="In inference a batch norm is a scale and a shift per channel, which the weights before it can take "
    "over: one pass over memory less, same result.",
    source="course on efficient deep learning, the folding formula; torch.nn.utils.fusion",
    published="the formula; no time is given",
    factor="time of convolution and norm over the folded convolution, 64 channels of 56 x 56, batch 8",
    reproduced=(1.03, 2.0),
    why="The norm reads and writes the whole activation to multiply each channel by one number. Folded, that is "
    "part of weights which are read anyway. It pays where the activation does not fit a cache, and most behind "
    "cheap layers (1 x 1 and depthwise convolutions). Training needs the batch's own statistics, so nothing can be "
    "folded there.",
    measure=measure, finding=("norms_by_themselves", "BRR210"), seconds=10.0,
)  # fmt: skip
