"""Models in eval() mode keep nothing for a backward that never comes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class NoGradEvaluation(Remedy):
    """torch.no_grad() around forwards of a module in eval() mode. A program that trains in eval() mode loses its
    gradients: the guard sees that."""

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
            forward = module.forward

            @functools.wraps(forward)
            def quiet(*args: Any, **kwargs: Any) -> Any:
                if module.training or not torch.is_grad_enabled():
                    return forward(*args, **kwargs)
                seams.applied(self.name, type(module).__name__)
                with torch.no_grad():
                    return forward(*args, **kwargs)

            seams.replace(module, "forward", quiet)

        seams.at_model(wrap)


REMEDY = NoGradEvaluation()
