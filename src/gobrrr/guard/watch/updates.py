"""Record an optimizer's update: of each parameter, from which gradient, with which numbers. Imports no torch."""

from __future__ import annotations

from typing import Any

from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.watch.digest import dense, look

NOT_NUMBERS = frozenset(("params", "fused", "foreach", "capturable", "differentiable", "maximize_grad"))
"""Entries of an optimizer's group that choose an implementation, not a computation."""


def unscaled(optimizer: Any, gradient: Any) -> Any:
    """A fused optimizer under a GradScaler divides inside its kernel."""
    scale = getattr(optimizer, "grad_scale", None)
    return gradient if scale is None or gradient is None else gradient / scale


def update(parameter: Any, before: Any) -> Seen:
    """Return the change; its digest is the parameter's, so that equal updates of other parameters are not the same."""
    if before is None:
        return look(parameter)
    return look(dense(parameter).double() - dense(before).double(), of=parameter)


def hyperparameters(optimizer: Any) -> tuple[dict[str, str], ...]:
    """Every group's numbers, and the optimizer's kind."""
    kind = type(optimizer).__name__
    return tuple(
        {"optimizer": kind} | {key: _number(value) for key, value in group.items() if key not in NOT_NUMBERS}
        for group in optimizer.param_groups
    )


def _number(value: Any) -> str:
    """A learning rate may be a tensor in one run and a float in the other."""
    item = getattr(value, "item", None)
    return (
        repr(float(f"{item():.7g}")) if callable(item) and getattr(value, "numel", lambda: 0)() == 1 else _text(value)
    )


def _text(value: Any) -> str:
    return repr(float(f"{value:.7g}")) if isinstance(value, float) else repr(value)
