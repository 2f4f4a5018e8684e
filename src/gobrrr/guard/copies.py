"""Copies of the weights that the program keeps beside its models (an EMA, a teacher, shadow weights): do they move?

They belong to no optimizer and need not be called, so that no hook sees them stop. They are found where they live:
among all tensors of the process, as those that have the shape of a parameter and are not one.
"""

from __future__ import annotations

import gc
from typing import Any

from gobrrr.guard.look import look
from gobrrr.guard.rows import is_plain
from gobrrr.guard.seen import Seen


def copies(shapes: set[tuple[int, ...]], known: set[int]) -> dict[str, tuple[Seen, ...]]:
    """Samples of all such tensors by their shape, those of one shape ordered by their norms. `known`: addresses of what
    is accounted for: parameters, gradients, buffers, optimizers' states."""
    import torch

    found: dict[str, dict[int, Seen]] = {}
    kinds = {torch.Tensor, torch.nn.Parameter}
    for obj in [o for o in gc.get_objects() if type(o) in kinds]:
        if not _may_be(obj, shapes):
            continue
        address = obj.untyped_storage().data_ptr()
        if address and address not in known:
            found.setdefault(str(tuple(obj.shape)), {})[address] = look(obj, whole=False)
    return {shape: tuple(sorted(each.values(), key=lambda s: s.norm)) for shape, each in found.items()}


def _may_be(tensor: Any, shapes: set[tuple[int, ...]]) -> bool:
    return is_plain(tensor) and tensor.is_floating_point() and tuple(tensor.shape) in shapes and tensor.grad_fn is None
