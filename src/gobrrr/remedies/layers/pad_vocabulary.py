"""A vocabulary of a size that tensor cores like: 50257 columns become 50304, those beyond the end masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gobrrr.remedies.layers.lazy_head import make_lazy
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams

MULTIPLE = 64
"""128 bytes of half precision: the row length from which cuBLAS takes its fastest kernels (NVIDIA's guide to matrix
products asks for multiples of 8 on V100 and 64 on A100)."""


class PadVocabulary(Remedy):
    """The head's product and its cross-entropy run over a padded copy of the weights; parameters, gradients and logits
    keep their shapes for everybody else."""

    name = "pad_vocabulary"
    title = "pads a large vocabulary to a multiple of 64, with the added logits masked"
    safety = "tolerance"
    place = "model"
    codes = ("BRR109",)
    conflicts = ("chunked_loss", "compile", "compile_reduce_overhead", "compile_max_autotune", "compile_frozen")
    by_hand = "nn.Linear(width, 50304)  # and no target beyond 50256"

    def apply(self, seams: Seams) -> None:
        make_lazy(seams, self.name, multiple=MULTIPLE, whole=True)
