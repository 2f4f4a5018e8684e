"""Attention within documents of packed rows, in the form that each kernel takes.

`document_ids` (rows x tokens) are those of `PackingCollate`: one number per document, -1 for padding, which counts as
a document of its own: its outputs mean nothing, but no softmax is over nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def block_mask(document_ids: Tensor, causal: bool = True) -> Tensor:
    """For `scaled_dot_product_attention(attn_mask=...)`: bool, rows x 1 x tokens x tokens, True where query (row of the
    matrix) may see key. Takes rows x tokens^2 bytes."""
    same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
    return same.tril() if causal else same


def mask_mod(document_ids: Tensor, causal: bool = True) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """For flex_attention: `create_block_mask(mask_mod(ids), rows, None, tokens, tokens)`."""

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = document_ids[row, query] == document_ids[row, key]
        return same & (query >= key) if causal else same

    return sees


def cu_seqlens(document_ids: Tensor) -> tuple[Tensor, int]:
    """For kernels of variable length (FlashAttention's, torch.nn.attention.varlen), over the rows put end to end: where
    each document begins and the last one ends (int32), and the length of the longest. Padding is one of them."""
    flat = document_ids.flatten()
    new = torch.ones(len(flat) + 1, dtype=torch.bool, device=flat.device)
    new[1:-1] = flat[1:] != flat[:-1]
    ends = new.nonzero().flatten()
    return ends.to(torch.int32), int(ends.diff().max())
