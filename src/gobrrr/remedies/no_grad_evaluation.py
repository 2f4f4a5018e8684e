"""Models in eval() mode keep nothing for a backward that never comes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

CLEAN = 3
"""Evaluations of which the first forward had no backward, from which all their forwards go without a graph: some are
one forward long."""


class NoGradEvaluation(Remedy):
    """torch.no_grad() around forwards of a module in eval() mode, but for the first of each of its first evaluations:
    where a backward comes through it the program trains in eval() mode, and the module is left alone."""

    name = "no_grad_evaluation"
    title = "evaluates without building a graph"
    safety = "exact"
    place = "model"
    late = True
    saves_memory = True
    codes = ("BRR107",)
    by_hand = "with torch.inference_mode():"

    def apply(self, seams: Seams) -> None:
        import torch

        def wrap(module: Any) -> None:
            forward, seen = module.forward, _Evaluations()

            @functools.wraps(forward)
            def quiet(*args: Any, **kwargs: Any) -> Any:
                if module.training:
                    seen.begins = True
                if module.training or seen.train or not torch.is_grad_enabled():
                    return forward(*args, **kwargs)
                if seen.is_looked_at():
                    return seen.looked_at(forward(*args, **kwargs))
                seams.applied(self.name, type(module).__name__)
                with torch.no_grad():
                    return forward(*args, **kwargs)

            seams.replace(module, "forward", quiet)

        seams.at_model(wrap)


class _Evaluations:
    """Of one module: whether a backward comes through them."""

    def __init__(self) -> None:
        self.begins, self.train = True, False
        self._looked_at = 0

    def is_looked_at(self) -> bool:
        """The first forward of each of the first evaluations."""
        first, self.begins = self.begins and self._looked_at < CLEAN, False
        self._looked_at += first
        return first

    def looked_at(self, outputs: Any) -> Any:
        """The outputs, which tell of a backward."""
        import torch
        from torch.utils._pytree import tree_leaves

        for tensor in tree_leaves(outputs):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(self._trained)  # type: ignore[no-untyped-call]
        return outputs

    def _trained(self, _: Any) -> None:
        self.train = True


REMEDY = NoGradEvaluation()
