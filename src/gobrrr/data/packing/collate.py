"""Documents put into rows one after another, with all that keeps them apart: ids, masks, the loss.

`document_ids` (rows x tokens) have one number per document, -1 for padding, which counts as a document of its own: its
outputs mean nothing, but no softmax is over nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from gobrrr.errors import GobrrrError

IDS, LABELS, MASK = "input_ids", "labels", "attention_mask"


class PackingCollate:
    """`collate_fn` of a DataLoader whose items are packs: lists of samples that share a row of `capacity` tokens.

    A sample is a mapping with `input_ids` (and `labels`, and whatever has one element per token), or the ids alone:
    a tensor, array or list. What comes back, rows x capacity:

    - `input_ids`, and others of the sample's names, padded with `pad_id` and with 0;
    - `position_ids`, which restart at `first_position` (RoBERTa's begin at its padding index + 1);
    - `document_ids`, counted over the batch, -1 for padding: see `block_mask`;
    - `attention_mask`, bool, rows x 1 x capacity x capacity: no attention across documents;
    - `labels`, -100 for padding; where `causal`, the first of each document is -100 too, since it would be predicted
      from the document before, and labels are the ids if the sample has none. They are not shifted: the loss does that
      (`token_loss`, Hugging Face's models);
    - `num_labels`, how many are not -100: what the loss is divided by.

    `keys` says which of them to return, for what passes all of a batch to the model.
    """

    def __init__(
        self, capacity: int, *, causal: bool = True, pad_id: int = 0, first_position: int = 0,
        keys: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        if capacity < 1:
            raise GobrrrError(f"capacity={capacity} is no length of a row", "give its number of tokens, 1 or more")
        self.capacity = capacity
        self.causal = causal
        self.pad_id = pad_id
        self.first_position = first_position
        self.keys = keys

    def __call__(self, packs: Sequence[Sequence[Any]]) -> dict[str, Tensor]:
        packs = [[self._sample(sample) for sample in pack] for pack in packs]
        names = {frozenset(sample) for pack in packs for sample in pack}
        if len(names) > 1:
            what = "samples of one batch have different keys: " + " and ".join(sorted(str(sorted(n)) for n in names))
            raise GobrrrError(what, "give every sample the same keys")
        held = next(iter(names), {IDS, LABELS} if self.causal else {IDS})
        fill = dict.fromkeys(sorted(held), 0) | {IDS: self.pad_id}
        fill |= {LABELS: IGNORED} if LABELS in fill else {}
        batch = {name: self._rows(packs, name, value) for name, value in fill.items()}
        lengths = [[len(sample[IDS]) for sample in pack] for pack in packs]
        batch["position_ids"] = torch.stack([self._positions(one) for one in lengths])
        batch["document_ids"] = self._documents(lengths)
        if self.keys is None or MASK in self.keys:
            batch[MASK] = block_mask(batch["document_ids"], self.causal)
        if LABELS in batch:
            batch["num_labels"] = (batch[LABELS] != IGNORED).sum()
        return batch if self.keys is None else {name: batch[name] for name in self.keys}

    def _sample(self, sample: Any) -> dict[str, Tensor]:
        """Its tensors with one element per token, with the labels that it is to have."""
        given = dict(sample) if isinstance(sample, Mapping) else {IDS: sample}
        if IDS not in given:
            raise GobrrrError(f"a sample has no input_ids but {sorted(given)}", "name its tokens input_ids")
        tensors = {name: torch.as_tensor(value) for name, value in given.items()}
        length = tensors[IDS].shape
        odd = [f"{name} {list(value.shape)}" for name, value in tensors.items() if value.shape != length]
        if len(length) != 1 or odd:
            raise GobrrrError(
                f"a sample is not one row of tokens: input_ids {list(length)}" + "".join(f", {one}" for one in odd),
                "packing takes tensors with one element per token; put what belongs to a whole sample elsewhere",
            )
        if MASK in tensors and not bool(tensors.pop(MASK).all()):
            raise GobrrrError(
                "a sample is padded already (zeros in its attention_mask)", "pack samples without padding"
            )
        if self.causal:
            tensors[LABELS] = tensors.get(LABELS, tensors[IDS]).to(torch.int64, copy=True)
            tensors[LABELS][:1] = IGNORED
        return tensors

    def _rows(self, packs: Sequence[Sequence[Mapping[str, Tensor]]], name: str, fill: int) -> Tensor:
        kind = next((sample[name].dtype for pack in packs for sample in pack), torch.int64)
        rows = torch.full((len(packs), self.capacity), fill, dtype=kind)
        for row, pack in zip(rows, packs, strict=True):
            length = sum(len(sample[IDS]) for sample in pack)
            if length > self.capacity:
                raise GobrrrError(
                    f"a pack has {length} tokens, a row {self.capacity}",
                    "pack for the same capacity; items of the data set are lists of samples (PackedDataset does that)",
                )
            if pack:
                torch.cat([sample[name] for sample in pack], out=row[:length])
        return rows

    def _positions(self, lengths: Sequence[int]) -> Tensor:
        parts = [torch.arange(length) for length in (*lengths, self.capacity - sum(lengths))]
        return torch.cat(parts) + self.first_position

    def _documents(self, lengths: Sequence[Sequence[int]]) -> Tensor:
        ids = torch.full((len(lengths), self.capacity), -1)
        first = 0
        for row, one in zip(ids, lengths, strict=True):
            numbers = torch.arange(first, first + len(one)).repeat_interleave(torch.tensor(one, dtype=torch.int64))
            row[: len(numbers)] = numbers
            first += len(one)
        return ids


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


IGNORED = -100
"""Label that cross_entropy computes no loss from."""


def token_loss(logits: Tensor, labels: Tensor, total: Tensor | float | None = None, causal: bool = True) -> Tensor:
    """The sum of the labels' cross-entropies over `total` (default: the labels of this batch).

    Under accumulation and across ranks give `global_labels(batches)`: the mean over micro-batches of their means weighs
    a token by how full its batch is. `causal`: logits at a position are for the label of the next one.
    """
    losses = _losses(logits, labels, causal)
    return losses.sum() / ((labels != IGNORED).sum().clamp(min=1) if total is None else total)


def global_labels(batches: Iterable[Mapping[str, Tensor]], group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the divisor of summed losses in one update: the labels of all its micro-batches on all ranks, over the
    number of ranks, since DistributedDataParallel averages gradients. Every rank must call it."""
    total = torch.stack([batch["num_labels"].to(torch.float64) for batch in batches]).sum()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(total, group=group)
        total /= dist.get_world_size(group)
    return total.clamp(min=1)


def document_losses(logits: Tensor, labels: Tensor, document_ids: Tensor, causal: bool = True) -> Tensor:
    """Return for each document of a batch, in the order of ids, the sum of its tokens' losses."""
    losses = _losses(logits, labels, causal)
    # Without its labels the padding's losses are zero: it may go anywhere.
    return losses.new_zeros(int(document_ids.max()) + 1).index_add(0, document_ids.clamp(min=0).flatten(), losses)


def _losses(logits: Tensor, labels: Tensor, causal: bool) -> Tensor:
    """Per token in the order of the labels, zero where there is none."""
    if causal:  # rolled, not cut: the first label of a row is never counted
        logits = logits.roll(1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
