"""Backward of a scaled loss in an unmodified program, so that small gradients survive float16.

The scale goes in as the gradient of the loss (no node joins the graph) and out again in a hook on every parameter,
before its gradient is accumulated. Growth and decay are those of torch.amp.GradScaler.
"""

from __future__ import annotations

from typing import Any

import torch

from gobrrr.capture.hooks.lookup import Patches
from gobrrr.remedies.mechanism.optimizer_groups import parameters_of

FIRST_SCALE, GROWTH, DECAY, GROW_AFTER = 2.0**16, 2.0, 0.5, 2000
"""Defaults of torch.amp.GradScaler."""


class GradientScaling:
    """One scale for the process. Only scalar losses that reach torch.autograd.backward without a gradient of their own
    are scaled; torch.autograd.grad is left alone."""

    def __init__(self) -> None:
        self.scale = FIRST_SCALE
        self._good = 0
        self._running = 0.0
        """The scale of the backward that runs now; 0 outside of one."""
        self._patches = Patches()
        self._divided: set[int] = set()

    def install(self) -> None:
        """From now on losses are scaled, once there are parameters whose gradients are divided."""
        plain = torch.autograd.backward

        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            loss = tensors if isinstance(tensors, torch.Tensor) else None
            if loss is None or grad_tensors is not None or loss.numel() != 1 or not self._divided or self._running:
                return plain(tensors, grad_tensors, *args, **kwargs)
            first = torch.full_like(loss, self.scale)
            self._running = self.scale
            try:
                return plain(loss, first, *args, **kwargs)
            finally:
                self._running = 0.0

        self._patches.replace(torch.autograd, "backward", backward)

    def remove(self) -> None:
        """Losses are what they were."""
        self._patches.take_out()
        self._divided.clear()  # somebody may have wrapped our backward: it scales nothing that nobody divides

    def divide_gradients(self, module: torch.nn.Module) -> None:
        """Hooks on the parameters of a model."""
        for parameter in module.parameters():
            if parameter.requires_grad and id(parameter) not in self._divided:
                self._divided.add(id(parameter))
                self._patches.append(parameter.register_hook(self._divide).remove)  # type: ignore[no-untyped-call]

    def _divide(self, gradient: torch.Tensor) -> torch.Tensor | None:
        return gradient / self._running if self._running else None

    def watch(self, optimizer: Any) -> None:
        """Pass over updates of gradients that overflowed. An optimizer without gradients updates nothing."""
        self._patches.append(optimizer.register_step_pre_hook(self._before_step).remove)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        parameters = [p for p in parameters_of(optimizer) if p.grad is not None]
        norms = torch._foreach_norm([p.grad for p in parameters]) if parameters else []
        if norms and not bool(torch.isfinite(torch.stack([n.float() for n in norms])).all()):
            for parameter in parameters:
                parameter.grad = None
            self.scale, self._good = self.scale * DECAY, 0
            return
        self._good += 1
        if self._good == GROW_AFTER:
            self.scale, self._good = self.scale * GROWTH, 0
