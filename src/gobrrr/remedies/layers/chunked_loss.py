"""Logits of a large vocabulary and their cross-entropy, chunk by chunk, so that they never exist as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gobrrr.remedies.layers.lazy_head import make_lazy
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class ChunkedLoss(Remedy):
    """The outputs of linear layers with 4096 classes and more stay uncomputed until they are used; a cross-entropy of
    them is computed in chunks, with its gradients. Whatever else uses them gets them whole."""

    name = "chunked_loss"
    title = "never builds the logits of a large vocabulary as a whole"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    codes = ("BRR203",)
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune", "compile_frozen")
    by_hand = "torch.nn.functional.linear_cross_entropy(hidden, head.weight, target)  # torch 2.15"

    def apply(self, seams: Seams) -> None:
        make_lazy(seams, self.name)
