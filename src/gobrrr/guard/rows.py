"""What a model is given, sample by sample, and which tensors stand in what it gives back."""

from __future__ import annotations

import hashlib
from typing import Any

from gobrrr.guard.look import raw
from gobrrr.guard.observation import Data

MOST_ROWS = 4096
"""Samples of one call that are told apart; of longer batches the first ones."""


def tensors_of(value: Any) -> list[Any]:
    """All tensors in a nest of tuples, lists, mappings and dataclass-like outputs, in a fixed order."""
    import torch
    from torch.utils._pytree import tree_leaves

    found = [leaf for leaf in tree_leaves(_opened(value)) if isinstance(leaf, torch.Tensor)]
    # Outputs that a remedy has not computed yet say so by having this method.
    return [leaf.materialise() if hasattr(leaf, "materialise") else leaf for leaf in found]


def _opened(value: Any) -> Any:
    """Outputs of transformers are mappings that pytree may not know."""
    items = getattr(value, "items", None)
    return dict(items()) if callable(items) and not isinstance(value, dict) and hasattr(value, "keys") else value


def storages(tensors: list[Any]) -> set[int]:
    """Where their elements lie."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout.__str__() == "torch.strided"}


def data_of(arguments: Any, computed: set[int] = frozenset(), rows: bool = True) -> Data:  # type: ignore[assignment]
    """Digest of the tensors among the arguments that the program gives, and of each sample of theirs.

    What a model computed (it asks for gradients, or lies in one of the storages `computed`) differs between runs by
    rounding, and is left out.
    """
    everything = tensors_of(arguments)
    found = [t for t in everything if not t.requires_grad and not storages([t]) & computed]
    whole = hashlib.blake2b(digest_size=12)
    for tensor in found:
        whole.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        whole.update(raw(tensor))
    num = found[0].shape[0] if found and found[0].dim() else 0
    each = _rows(found, num) if rows and num else ()
    return Data(whole.hexdigest(), each, sum(tensor.numel() for tensor in found), derived=len(found) < len(everything))


def _rows(tensors: list[Any], num: int) -> tuple[str, ...]:
    """One digest per sample, over all tensors that have as many rows."""
    hashes = [hashlib.blake2b(digest_size=8) for _ in range(min(num, MOST_ROWS))]
    for tensor in tensors:
        if tensor.dim() and tensor.shape[0] == num:
            data = raw(tensor)
            size = len(data) // num
            for i, each in enumerate(hashes):
                each.update(data[i * size : (i + 1) * size])
    return tuple(each.hexdigest() for each in hashes)
