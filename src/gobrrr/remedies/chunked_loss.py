"""Logits of a large vocabulary and their cross-entropy, chunk by chunk, so that they never exist as a whole."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

LARGE = 4096
"""Classes from which a linear layer's output is worth it."""


class ChunkedLoss(Remedy):
    """The outputs of linear layers with 4096 classes and more stay uncomputed until they are used; a cross-entropy of
    them is computed in chunks, with its gradients. Whatever else uses them gets them whole."""

    name = "chunked_loss"
    title = "never builds the logits of a large vocabulary as a whole"
    safety = "tolerance"
    place = "model"
    codes = ("BRR203",)
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune", "compile_frozen")
    by_hand = "torch.nn.functional.linear_cross_entropy(hidden, head.weight, target)  # torch 2.15"

    def apply(self, seams: Seams) -> None:
        import torch

        from gobrrr.remedies.lazylogits import LazyLogits

        def used() -> None:
            seams.applied(self.name)

        def make_lazy(module: Any) -> None:
            heads: list[Any] = [m for m in module.modules() if type(m) is torch.nn.Linear and m.out_features >= LARGE]
            for head in heads:
                head.forward = _lazy(head, LazyLogits, used)
                seams.undo(functools.partial(head.__dict__.pop, "forward", None))

        seams.at_model(make_lazy)


def _lazy(head: Any, kind: Any, used: Any) -> Any:
    """The head's forward: lazy in training, as ever in evaluation."""
    import torch

    plain = head.forward

    @functools.wraps(plain)
    def forward(hidden: Any) -> Any:
        if not head.training or not torch.is_grad_enabled():
            return plain(hidden)
        device = hidden.device.type
        lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        return kind.of(hidden, head.weight, head.bias, used, product_dtype=lowered)

    return forward


REMEDY = ChunkedLoss()
