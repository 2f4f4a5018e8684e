"""Embeddings hand on gradients for the rows that were looked up, not for all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class SparseGradient(Remedy):
    """embedding.sparse = True where the optimizer takes sparse gradients and computes the same with them: plain SGD and
    Adagrad without momentum and weight decay."""

    name = "sparse_gradient"
    title = "gives embeddings sparse gradients"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    codes = ("BRR206",)
    by_hand = "torch.nn.Embedding(..., sparse=True)"

    def apply(self, seams: Seams) -> None:
        import torch

        embeddings: list[Any] = []

        def meet(module: Any) -> None:
            embeddings.extend(m for m in module.modules() if isinstance(m, torch.nn.Embedding) and not m.sparse)

        def switch(optimizer: Any) -> None:
            if type(optimizer) not in (torch.optim.SGD, torch.optim.Adagrad):
                return
            if any(group.get("momentum") or group.get("weight_decay") for group in optimizer.param_groups):
                return
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            for embedding in (e for e in embeddings if id(e.weight) in held and not e.sparse):
                embedding.sparse = True
                seams.undo(partial(setattr, embedding, "sparse", False))
                seams.applied(self.name, f"{embedding.num_embeddings:,} rows")

        seams.at_model(meet)
        seams.at_optimizer(switch)


REMEDY = SparseGradient()
