"""The bytes of arrays and tensors, whatever their layout; of large ones evenly spread pieces, without a copy of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_MOST_BYTES, _PIECES = 256 << 20, 4096
"""Bytes read of an array; of a larger one so many, in so many pieces, evenly spread: it may be a mapped file."""
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def feed(update: Callable[[Any], None], value: np.ndarray[Any, Any], whole: bool = False) -> None:
    """Give an array's bytes to a hash; of a large one all of them where `whole`."""
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        update(b"columns first")
        value = value.T  # of a mapped file, in the order of its pages
    if whole or value.nbytes <= _MOST_BYTES:
        update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return
    for start, end in _pieces(value.size, value.itemsize):
        update(value.flat[start:end].tobytes())


def feed_tensor(update: Callable[[Any], None], value: torch.Tensor, whole: bool = False) -> None:
    """Give the bytes of a dense tensor to a hash, as feed() does."""
    value = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    if not whole and value.device.type != "cpu" and value.nbytes > _MOST_BYTES:
        flat = value.reshape(-1)
        value = torch.cat([flat[start:end] for start, end in _pieces(value.numel(), value.itemsize)])
    feed(update, np.from_dlpack(value.cpu().view(_SAME_SIZE[value.itemsize])), whole)


def _pieces(size: int, itemsize: int) -> list[tuple[int, int]]:
    length = _MOST_BYTES // _PIECES // itemsize
    return [(int(at), int(at) + length) for at in np.linspace(0, size - length, _PIECES).astype(np.int64)]


def parts_of(value: torch.Tensor) -> list[Any] | None:
    """Return the tensors that a sparse, quantised or nested one is made of; None for a dense one."""
    if value.is_nested:
        return list(value.unbind())
    if value.layout is torch.sparse_coo:
        return [value._indices(), value._values()]
    if value.layout in _COMPRESSED:
        return [*(getattr(value, name)() for name in _COMPRESSED[value.layout]), value.values()]
    if not value.is_quantized:
        return None
    scheme = str(value.qscheme())
    if "per_channel" in scheme:
        scales = [value.q_per_channel_scales(), value.q_per_channel_zero_points(), value.q_per_channel_axis()]
        return [scheme, *scales, value.int_repr()]
    return [scheme, value.q_scale(), value.q_zero_point(), value.int_repr()]
