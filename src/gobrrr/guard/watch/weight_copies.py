"""Copies of the weights that the program keeps beside its models (an EMA, a teacher, shadow weights): do they move?

They belong to no optimizer and need not be called, so that no hook sees them stop. They are found where they live:
among all tensors of the process, as those that have the shape of a parameter and are not one.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from gobrrr.capture.hooks.lookup import Patches
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.watch.digest import look
from gobrrr.guard.watch.inputs import is_plain


class Tensors:
    """All tensors of the process. What gc.freeze() hides from the collector it hides from who asks it, too."""

    def __init__(self) -> None:
        self._frozen: list[weakref.ref[Any]] = []

    def watch(self, patches: Patches) -> None:
        """Note what is frozen from now on, until `patches` are taken out."""
        plain = gc.freeze

        def freeze() -> None:
            self._frozen += map(weakref.ref, _tracked())
            plain()

        patches.replace(gc, "freeze", freeze)

    def all(self) -> list[Any]:
        """Return the tensors that are alive now; one that was frozen and is not any more is there twice."""
        frozen = (ref() for ref in self._frozen)
        return [*(tensor for tensor in frozen if tensor is not None), *_tracked()]


def _tracked() -> list[Any]:
    kinds = {torch.Tensor, torch.nn.Parameter}
    return [obj for obj in gc.get_objects() if type(obj) in kinds]


def copies(tensors: Iterable[Any], shapes: set[tuple[int, ...]], known: set[int]) -> dict[str, tuple[Seen, ...]]:
    """Samples of all such tensors by their shape, those of one shape ordered by their norms. `known`: addresses of what
    is accounted for: parameters, gradients, buffers, optimizers' states."""
    found: dict[str, dict[int, Seen]] = {}
    for obj in tensors:
        floats = is_plain(obj) and obj.is_floating_point() and obj.grad_fn is None
        if not floats or tuple(obj.shape) not in shapes:
            continue
        address = obj.untyped_storage().data_ptr()
        if address and address not in known:
            found.setdefault(str(tuple(obj.shape)), {})[address] = look(obj, whole=False)
    return {shape: tuple(sorted(each.values(), key=lambda s: s.norm)) for shape, each in found.items()}
