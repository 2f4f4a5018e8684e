"""The remedy for linear heads of large vocabularies: a loss in chunks."""

from __future__ import annotations

from functools import partial
from typing import Any

from gobrrr.capture.hooks.transform_guard import is_transformed
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy

LARGE = 4096
"""Classes from which a linear layer's output is worth it."""


class ChunkedLoss(Remedy):
    """The outputs of linear layers with 4096 classes and more stay uncomputed until they are used; a cross-entropy of
    them is computed in chunks, with its gradients. Whatever else uses them gets them whole."""

    name = "chunked_loss"
    title = "never builds the logits of a large vocabulary as a whole"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune")
    by_hand = "torch.nn.functional.linear_cross_entropy(hidden, head.weight, target)  # torch 2.15"

    def apply(self, seams: Seams) -> None:
        import torch

        from gobrrr.remedies.layers.lazy_logits import LazyLogits, keep_heads

        used = partial(seams.applied, self.name)

        def lazy(head: Any, plain: Any, hidden: Any) -> Any:
            """Lazy in training, as ever in evaluation and inside of transforms."""
            transformed = is_transformed() and not torch.compiler.is_compiling()
            if not head.training or not torch.is_grad_enabled() or transformed:
                return plain(hidden)
            device = hidden.device.type
            lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
            return LazyLogits.of(hidden, head.weight, head.bias, used, product_dtype=lowered)

        def change(model: Any) -> None:
            for head in model.modules():
                if type(head) is torch.nn.Linear and head.out_features >= LARGE:
                    seams.replace(head, "forward", replaced(head, lazy))

        seams.undo(keep_heads)  # logits that are alive keep their weights as they are: no later step is announced
        seams.at_step(keep_heads)  # an optimizer is about to change the weights they would be computed from
        seams.at_model(change)
