"""Edits of a model's weights, honest and sabotaged, each of a strength: 0 changes nothing, 1 destroys the model."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.lossy.inprocess import Edit, once

Graded = Callable[[torch.Tensor, float, torch.Generator], torch.Tensor]
"""A weight matrix, one row for each output, at a strength; what is drawn comes from the generator."""


def matrices(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights that are multiplied: of linear, convolution and recurrent layers; those of embeddings stay."""
    kept = {weight.data_ptr() for each in model.modules() if isinstance(each, nn.Embedding) for weight in [each.weight]}
    for name, weight in model.named_parameters():
        if weight.ndim >= 2 and name.rpartition(".")[2].startswith("weight") and weight.data_ptr() not in kept:
            yield name, weight


def noise(weight: torch.Tensor, strength: float, draw: torch.Generator) -> torch.Tensor:
    """Gaussian noise, in deviations of the weights."""
    return weight + strength * weight.std() * torch.randn(weight.shape, generator=draw)


def zeroed(weight: torch.Tensor, strength: float, draw: torch.Generator) -> torch.Tensor:
    """A random share set to zero."""
    return weight * (torch.rand(weight.shape, generator=draw) >= strength)


def pruned(weight: torch.Tensor, strength: float, draw: torch.Generator) -> torch.Tensor:
    """The share of least size set to zero."""
    least = weight.abs().flatten().kthvalue(max(1, round(strength * weight.numel()))).values
    return weight * (weight.abs() > least) if strength else weight


def coarse(weight: torch.Tensor, strength: float, draw: torch.Generator) -> torch.Tensor:
    """Rounded to a grid whose step is that share of each row's largest."""
    step = strength * weight.abs().amax(1, keepdim=True).clamp(min=1e-12)
    return (weight / step).round() * step if strength else weight


def low_rank(weight: torch.Tensor, strength: float, draw: torch.Generator) -> torch.Tensor:
    """Of lower rank by that share."""
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    rank = max(1, round((1 - strength) * len(values)))
    return (left[:, :rank] * values[:rank]) @ right[:rank]


GRADED: dict[str, Graded] = {each.__name__: each for each in (noise, zeroed, pruned, coarse, low_rank)}


def graded(kind: str, strength: float) -> Edit:
    """An edit of that kind on all matrices; `dropped` sets whole layers to zero, the last of them in part."""

    @torch.no_grad()
    def edit(model: nn.Module) -> None:
        weights = list(matrices(model))
        if kind == "dropped":
            random.Random(0).shuffle(weights)
            for number, (_, weight) in enumerate(weights):
                weight.mul_(1 - min(1.0, max(0.0, strength * len(weights) - number)))
            return
        for name, weight in weights:
            draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            weight.copy_(GRADED[kind](weight.flatten(1), strength, draw).view_as(weight))

    return once(edit)


KINDS = (*GRADED, "dropped")


@torch.no_grad()
def _bfloat16(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.copy_(weight.bfloat16())


@torch.no_grad()
def _int8_weights(model: nn.Module) -> None:
    for _, weight in matrices(model):
        weight.copy_(coarse(weight.flatten(1), 1 / 127, torch.Generator()).view_as(weight))


def int8_dynamic(model: nn.Module) -> None:
    """Linear and recurrent layers by torch's own dynamic quantisation."""
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM}, dtype=torch.qint8, inplace=True)


def honest(model: str) -> dict[str, Edit]:
    """What a user would try; convolutions, and GPT-2, have no dynamic form: their weights alone are rounded."""
    int8: Any = once(_int8_weights) if model in ("resnet", "mobilenet", "vgg", "diffusion", "gpt2") else int8_dynamic
    return {"bfloat16 weights": once(_bfloat16), "int8": int8}
