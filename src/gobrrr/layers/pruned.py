"""Weights of which two in four are zero, which tensor cores of NVIDIA's devices multiply in half the time."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def two_of_four(model: Model, keep: Collection[str] = (), pack: bool = True) -> Model:
    """Keep the two largest of each four weights along the inputs of linear layers of `model`, in place.

    `pack`: as torch's semi-structured tensors, which need a CUDA device of compute capability 8.0 and weights of
    float16 or bfloat16; else zeros are written, which saves no time. Layers named in `keep`, and those whose inputs or
    outputs are no multiples of 64, stay. Gives the model back.
    """
    for name, part in model.named_modules():
        if type(part) is nn.Linear and name not in keep and not (part.in_features % 64 or part.out_features % 64):
            four = part.weight.detach().view(part.out_features, -1, 4)
            kept = torch.zeros_like(four, dtype=torch.bool).scatter_(2, four.abs().topk(2, dim=2).indices, True)
            sparse = (four * kept).view_as(part.weight)
            packed = torch.sparse.to_sparse_semi_structured(sparse) if pack else sparse
            part.weight = nn.Parameter(packed, requires_grad=False)
    return model
