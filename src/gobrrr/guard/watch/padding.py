"""Find the padding in a model's arguments and outputs by the mask that it is given: numbers that do not count."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from gobrrr.guard.watch.rows import Cut, is_plain, leaves_of

MASK, IDS = "attention_mask", "input_ids"


def cut_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Cut:
    """Takes the columns at the end that no row of the call's attention mask (rows x tokens, integers, 1 where a token
    is) uses off a tensor that has an element or a vector for each token; leaves all else as it is, and everything where
    the ids in those columns are not all the same: then the mask means something else."""
    import torch

    ids, mask = _ids_and_mask(args, kwargs)
    if mask is None:
        return lambda tensor: tensor
    used = (mask != 0).any(0).nonzero()
    shape, width = mask.shape, int(used[-1]) + 1 if len(used) else mask.shape[1]
    padding = ids[:, width:]
    if not padding.numel() or bool((padding != padding[0, 0]).any()):
        return lambda tensor: tensor

    def cut(tensor: Any) -> Any:
        fits = tensor.layout == torch.strided and not tensor.is_nested and tensor.shape[:2] == shape
        return tensor[:, :width] if fits else tensor

    return cut


def tokens_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Cut:
    """Takes from a tensor that has an element or a vector for each token, whole or cut, those of real tokens by the
    call's attention mask; leaves all else as it is."""
    _, mask = _ids_and_mask(args, kwargs)
    if mask is None:
        return lambda tensor: tensor
    import torch

    shapes = (mask.shape, cut_of(args, kwargs)(mask).shape)

    def tokens(tensor: Any) -> Any:
        fits = tensor.layout == torch.strided and not tensor.is_nested and tensor.shape[:2] in shapes
        return tensor[mask[:, : tensor.shape[1]] != 0] if fits and tensor.device == mask.device else tensor

    return tokens


def _ids_and_mask(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Both (rows x tokens) by their names or by what they hold; nothing where they cannot be read."""
    given = next((each for each in (*args, kwargs) if isinstance(each, Mapping) and MASK in each), {})
    mask: Any = given.get(MASK)
    ids: Any = given.get(IDS)
    if ids is None or mask is None:
        ids, mask = _by_content(leaves_of((args, dict(kwargs))))
    if not _is_readable(mask) or not _is_readable(ids) or mask.shape != ids.shape or mask.dim() != 2:
        return None, None
    return ids, mask


def _by_content(arguments: Sequence[Any]) -> tuple[Any, Any]:
    """Ids and their mask among arguments with other names or none: two of a shape, one of them 0 exactly where the
    other has what its first row ends with, and 1 elsewhere."""
    import torch

    tables = [each for each in arguments if _is_readable(each) and each.dim() == 2 and each.numel()]
    for ids, mask in itertools.permutations(tables, 2):
        alike = ids.shape == mask.shape and ids.device == mask.device and ids.dtype != torch.bool
        if alike and bool((mask == (ids != ids[0, -1])).all()):
            return ids, mask
    return None, None


def _is_readable(tensor: Any) -> bool:
    import torch

    return (
        isinstance(tensor, torch.Tensor) and is_plain(tensor) and not tensor.is_floating_point()
        and not tensor.is_nested
    )  # fmt: skip
