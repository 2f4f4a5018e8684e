"""Digest a model's input sample by sample, and find the tensors in its output."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from gobrrr.guard.model.observation import Data
from gobrrr.guard.watch.digest import raw

Cut = Callable[[Any], Any]
"""Takes padding off a tensor."""
MOST_ROWS = 4096
"""Samples of one call that are told apart; of longer batches the first ones."""


def leaves_of(value: Any) -> list[Any]:
    """All that lies in a nest of tuples, lists, mappings and dataclass-like outputs, in a fixed order."""
    from torch.utils._pytree import tree_leaves

    return tree_leaves(_opened(value))


def tensors_of(value: Any) -> list[Any]:
    """All tensors among them."""
    import torch

    found = [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]
    # Outputs that a remedy has not computed yet say so by having this method; they stay as they are.
    return [leaf.looked_at() if hasattr(leaf, "looked_at") else leaf for leaf in found]


def _opened(value: Any) -> Any:
    """Outputs of transformers are mappings that pytree may not know."""
    items = getattr(value, "items", None)
    return dict(items()) if callable(items) and not isinstance(value, dict) and hasattr(value, "keys") else value


class Computed:
    """Storages of what models gave back. Weak: an address that was let go belongs to whoever has it next."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def add(self, tensors: Iterable[Any]) -> None:
        """Remember where their elements lie."""
        from torch.multiprocessing.reductions import StorageWeakRef

        for tensor in tensors:
            if is_plain(tensor):
                self._known[tensor.untyped_storage().data_ptr()] = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor lies in one of them."""
        if not is_plain(tensor):
            return False
        known = self._known.get(tensor.untyped_storage().data_ptr())
        return known is not None and not known.expired()

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


def is_plain(tensor: Any) -> bool:
    """Whether its elements lie in a storage of its own kind: strided, of one shape, and there at all."""
    import torch

    stands_for_others = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return bool(
        tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_nested
        and not stands_for_others
    )


def data_of(
    arguments: Any, computed: Computed | None = None, rows: bool = True, cut: Cut = lambda tensor: tensor,
    tokens: Cut = lambda tensor: tensor,
) -> Data:  # fmt: skip
    """Digest of the tensors among the arguments that the program gives, and of each sample of theirs.

    `cut` takes padding off each tensor, `tokens` leaves the elements of which the moments are. What a model computed
    (it asks for gradients, or lies in a storage of `computed`) differs between runs by rounding, and is left out.
    """
    given = [cut(tensor) for tensor in own_of(arguments, computed)]
    found = [part for tensor in given for part in _strided(tensor)]
    whole = hashlib.blake2b(digest_size=12)
    for tensor in found:
        whole.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        whole.update(raw(tensor))
    plain = [t for t in given if is_plain(t) and _strided(t)[0] is t]
    num = plain[0].shape[0] if plain and plain[0].dim() else 0
    each = _rows(plain, num) if rows and num else ()
    moments = _moments(tokens(plain[0])) if rows and plain else ()
    return Data(whole.hexdigest(), each, sum(tensor.numel() for tensor in found), moments=moments)


def own_of(arguments: Any, computed: Computed | None) -> list[Any]:
    """The tensors among the arguments that no model computed."""
    every = tensors_of(arguments)
    return [t for t in every if not t.requires_grad and not (computed is not None and computed.holds(t))]


def _strided(tensor: Any) -> list[Any]:
    """The strided tensors that one is made of: made dense, the adjacency of a large graph would fill the memory."""
    import torch

    if tensor.device.type == "meta":
        return []
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested:
        return list(tensor.unbind())
    return [tensor.int_repr()] if tensor.is_quantized else [tensor]


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


def _moments(tensor: Any) -> tuple[float, ...]:
    """Mean and standard deviation over all elements, and how many they are."""
    if tensor.is_complex() or tensor.is_mkldnn or tensor.numel() < 2:
        return ()
    values = tensor.detach().double()
    return float(values.mean()), float(values.std()), float(values.numel())


def fingerprint(value: Any, cut: Cut = lambda tensor: tensor) -> str:
    """Digest an item of a data set or a batch: arrays and images by their bytes, all else by its words or its type."""
    import torch

    found = hashlib.blake2b(digest_size=12)
    for leaf in leaves_of(value):
        if isinstance(leaf, torch.Tensor):
            for part in _strided(cut(leaf)):
                found.update(f"{tuple(part.shape)}{part.dtype}".encode())
                found.update(raw(part))
        elif hasattr(leaf, "tobytes"):
            found.update(leaf.tobytes())
        else:
            plain = isinstance(leaf, (str, bytes, int, float, bool, type(None)))
            found.update(repr(leaf).encode() if plain else type(leaf).__name__.encode())
    return found.hexdigest()
