"""Does a backward pass lead to weights, or to what a model was given alone (attribution, an attack, a dream)?"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import is_functional, unseen, variables

_INPUTS = 3
"""Position, among the arguments that torch.autograd hands to its engine, of the tensors to lead to; none: all
leaves."""


class Targets:
    """Looks at passes of a program that no optimizer updates. `alive` gives the modules that it calls."""

    def __init__(self, alive: Callable[[], list[tuple[int, Any]]]) -> None:
        self._alive = alive
        self._num_modules = -1
        self._shapes: set[tuple[int, ...]] = set()
        self._frozen = False

    def are_inputs(self, engine: FrameType, num_modules: int) -> bool:
        """Whether the pass that this frame of torch's starts leads to no weight of a model. What has the shape of a
        weight may stand for it in a functional call; inside a transform nothing is known."""
        import torch

        if is_functional():
            return False
        if num_modules != self._num_modules:
            self._num_modules = num_modules
            with unseen():
                self._look()
        given = variables(engine).get("args", ())
        inputs = given[_INPUTS] if len(given) > _INPUTS else ()
        if not self._shapes or not inputs:
            return self._frozen
        with unseen():
            tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
            return len(tensors) == len(inputs) and not any(
                isinstance(each, torch.nn.Parameter) or tuple(each.shape) in self._shapes for each in tensors
            )

    def _look(self) -> None:
        weights = [weight for _, module in self._alive() for _, weight in module_parts.parameters(module)]
        self._shapes = {tuple(weight.shape) for weight in weights}
        self._frozen = bool(weights) and not any(weight.requires_grad for weight in weights)
