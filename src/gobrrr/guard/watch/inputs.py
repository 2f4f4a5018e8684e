"""Record what a model is given: a digest sample by sample, padding cut off where a mask shows it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from gobrrr.guard.model.observation import Data
from gobrrr.guard.watch.digest import raw

Cut = Callable[[Any], Any]
"""Takes padding off a tensor."""
MOST_ROWS = 4096
"""Samples of one call that are told apart; of longer batches the first ones."""


def leaves_of(value: Any) -> list[Any]:
    """All that lies in a nest of tuples, lists, mappings and dataclass-like outputs, in a fixed order."""
    return tree_leaves(_opened(value))


def tensors_of(value: Any) -> list[Any]:
    """All tensors among them."""
    return [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]


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
    stands_for_others = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    is_there = tensor.layout == torch.strided and tensor.device.type != "meta"
    return bool(is_there and not tensor.is_nested and not stands_for_others)


def data_of(
    arguments: Any, computed: Computed | None = None, rows: bool = True, cut: Cut = lambda tensor: tensor,
    tokens: Cut = lambda tensor: tensor,
) -> Data:  # fmt: skip
    """Digest of the tensors among the arguments that the program gives, and of each sample of theirs.

    `cut` takes padding off each tensor, `tokens` leaves the elements of which the moments are. What a model computed
    (it asks for gradients, or lies in a storage of `computed`) differs between runs by rounding, and is left out.
    """
    every = tensors_of(arguments)
    own = [t for t in every if not t.requires_grad and not (computed is not None and computed.holds(t))]
    given = [cut(tensor) for tensor in own]
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


def _strided(tensor: Any) -> list[Any]:
    """The strided tensors that one is made of: made dense, the adjacency of a large graph would fill the memory."""
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


MASK, IDS = "attention_mask", "input_ids"


def cut_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Cut:
    """Takes the columns at the end that no row of the call's attention mask (rows x tokens, integers, 1 where a token
    is) uses off a tensor that has an element or a vector for each token; leaves all else as it is, and everything where
    the ids in those columns are not all the same: then the mask means something else."""
    ids, mask = _ids_and_mask(args, kwargs)
    if mask is None:
        return lambda tensor: tensor
    used = (mask != 0).any(0).nonzero()
    shape, width = mask.shape, int(used[-1]) + 1 if len(used) else mask.shape[1]
    padding = ids[:, width:]
    if not padding.numel() or bool((padding != padding[0, 0]).any()):
        return lambda tensor: tensor
    return lambda tensor: tensor[:, :width] if _has_tokens(tensor, (shape,)) else tensor


def _has_tokens(tensor: Any, shapes: Sequence[Any]) -> bool:
    return bool(tensor.layout == torch.strided and not tensor.is_nested and tensor.shape[:2] in shapes)


def tokens_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Cut:
    """Takes from a tensor that has an element or a vector for each token, whole or cut, those of real tokens by the
    call's attention mask; leaves all else as it is."""
    _, mask = _ids_and_mask(args, kwargs)
    if mask is None:
        return lambda tensor: tensor
    shapes = (mask.shape, cut_of(args, kwargs)(mask).shape)

    def tokens(tensor: Any) -> Any:
        fits = _has_tokens(tensor, shapes) and tensor.device == mask.device
        return tensor[mask[:, : tensor.shape[1]] != 0] if fits else tensor

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
    tables = [each for each in arguments if _is_readable(each) and each.dim() == 2 and each.numel()]
    for ids, mask in itertools.permutations(tables, 2):
        alike = ids.shape == mask.shape and ids.device == mask.device and ids.dtype != torch.bool
        if alike and bool((mask == (ids != ids[0, -1])).all()):
            return ids, mask
    return None, None


def _is_readable(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and is_plain(tensor) and not tensor.is_floating_point()
