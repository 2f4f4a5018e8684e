"""A change of a model at a place that a program reaches again: made once for each model."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def made_once(model: nn.Module, change: Callable[[nn.Module], nn.Module], kept: str = "_gobrrr_made") -> nn.Module:
    """Return what `change` makes of `model`; for that model, or what was made, the same again. `kept`: the attribute
    that holds it.

    A change that works on a copy is made anew where the model's own weights were written to since. Raises TypeError for
    what is no torch.nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"not a torch.nn.Module: {type(model).__name__}")
    made, weights = vars(model).get(kept, (None, None))
    if made is None or (made is not model and weights != _weights(model)):
        made = change(model)
        vars(made)[kept] = made, None  # past nn.Module's own setattr: it is no part of it
        if made is not model:
            vars(model)[kept] = made, _weights(model)
    return made  # type: ignore[no-any-return]


def _weights(model: nn.Module) -> list[tuple[int, int]]:
    """Which tensors the weights are, and how often each was written to."""
    return [(id(each), 0 if each.is_inference() else each._version) for each in model.parameters()]
