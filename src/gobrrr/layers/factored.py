"""Linear layers as the product of two thinner ones: the nearest of that rank, by singular value decomposition."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar, cast

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


class LowRank(nn.Sequential):
    """Two linear layers in the place of one, whose attributes it has; `weight` is the factors' product."""

    in_features = property(lambda self: self[0].in_features)
    out_features = property(lambda self: self[1].out_features)
    weight = property(lambda self: self[1].weight @ self[0].weight)
    bias = property(lambda self: self[1].bias)


def low_rank(model: Model, energy: float = 0.9, keep: Collection[str] = ()) -> Model:
    """Replace linear layers of `model`, in place, by two of the smallest rank r that holds this share of the energy.

    Energy is the sum of the squares of the weight's singular values: W (out, in) becomes A (out, r) times B (r, in)
    with |W - AB|^2 = (1 - share held) |W|^2 in the Frobenius norm. A layer stays where that saves no weights, r (in +
    out) >= in out, and where it is named in `keep` or its weight is computed (weight_norm). dtype, device and forward
    hooks are the layer's. A layer at several places stays one. Gives the model back; for a model that is one linear
    layer, what replaces that. Raises ValueError for an energy that is not above 0 and at most 1.
    """
    if not 0 < energy <= 1:
        raise ValueError(f"energy is a share, not {energy}")
    if type(model) is nn.Linear and "" not in keep:
        return cast("Model", _factored(cast("nn.Linear", model), energy) or model)
    thin: dict[nn.Module, nn.Module | None] = {}
    for path, owner in list(model.named_modules()):
        for name, layer in () if isinstance(owner, LowRank) else list(owner._modules.items()):
            if type(layer) is nn.Linear and f"{path}.{name}".lstrip(".") not in keep:
                if layer not in thin:
                    thin[layer] = _factored(layer, energy)
                owner._modules[name] = thin[layer] or layer
    return model


def _factored(layer: nn.Linear, energy: float) -> nn.Module | None:
    """Two layers in its place; None where they would hold no fewer weights, or a hook computes the weight."""
    if "weight" not in layer._parameters:
        return None
    exact = torch.promote_types(layer.weight.dtype, torch.float32)
    left, values, right = torch.linalg.svd(layer.weight.detach().to(exact), full_matrices=False)
    held = values.double().square().cumsum(0)
    rank = int((held < energy * held[-1]).sum()) + 1
    if rank * (layer.in_features + layer.out_features) >= layer.in_features * layer.out_features:
        return None
    first = nn.Linear(layer.in_features, rank, bias=False, device="meta")  # no random number is drawn
    second = nn.Linear(rank, layer.out_features, bias=layer.bias is not None, device="meta")
    root = values[:rank].sqrt()
    for part, weight in ((first, root[:, None] * right[:rank]), (second, left[:, :rank] * root)):
        part.weight = nn.Parameter(weight.to(layer.weight.dtype), layer.weight.requires_grad)
    second.bias = layer.bias
    thin = LowRank(first, second).train(layer.training)
    vars(thin).update({name: hooks for name, hooks in vars(layer).items() if "ward_" in name})  # handles still remove
    return thin
