"""Plain gradient descent, for programs that need an optimizer and not torch's: those load torch._dynamo, in 1.3 s."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

for _each in vars(torch.optim.Optimizer).values():
    if getattr(getattr(_each, "__code__", None), "co_name", "") == "inner":
        _each.__wrapped__.__dynamo_disable = _each.__wrapped__  # torch._compile loads it where this is not


class Descent(torch.optim.Optimizer):
    def __init__(self, params: Iterable[torch.Tensor], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad
