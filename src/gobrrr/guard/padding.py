"""What of a model's arguments and outputs is padding by the mask that it is given, and no number that counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MASK = "attention_mask"
Cut = Callable[[Any], Any]


def cut_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Cut:
    """Takes the columns at the end that no row of the call's attention mask (rows x tokens, 1 where a token is) uses
    off a tensor that has an element or a vector for each token; leaves all else as it is."""
    import torch

    masks = [given.get(MASK) for given in (*args, kwargs) if isinstance(given, Mapping)]
    mask = next((each for each in masks if isinstance(each, torch.Tensor) and each.dim() == 2), None)
    if mask is None or mask.layout != torch.strided or mask.device.type == "meta":
        return lambda tensor: tensor
    used = (mask != 0).any(0).nonzero()
    shape, width = mask.shape, int(used[-1]) + 1 if len(used) else mask.shape[1]

    def cut(tensor: Any) -> Any:
        fits = tensor.layout == torch.strided and not tensor.is_nested and tensor.shape[:2] == shape
        return tensor[:, :width] if fits else tensor

    return cut
