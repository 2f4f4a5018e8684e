"""The same program in float64, from which errors are counted, and from other seeds: how far apart do its runs lie?"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from gobrrr.capture.hooks.lookup import Patches

SEED = 0
"""Given to a program that sets none: otherwise no two runs of it could be compared."""
FAR = 1_000_003
"""Between the seeds of runs, so that seed + rank or seed + epoch of one is none of another."""


def seed() -> None:
    """Begin all random streams of this process anew."""
    import torch

    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


@contextlib.contextmanager
def shifted(number: int) -> Iterator[None]:
    """Every seed that the program sets for Python, NumPy and torch is moved by number * FAR; 0 leaves them."""
    import torch

    patches = Patches()

    def shift(owner: Any, name: str, most: int) -> None:
        plain = getattr(owner, name)

        def seeded(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
            moved = (seed + number * FAR) % most if isinstance(seed, int) and number else seed
            return plain(moved, *args, **kwargs)

        patches.replace(owner, name, seeded)

    try:
        shift(torch, "manual_seed", 1 << 63)
        shift(random, "seed", 1 << 63)
        shift(np.random, "seed", 1 << 32)
        shift(np.random, "default_rng", 1 << 63)
        seed()
        yield
    finally:
        patches.take_out()


@contextlib.contextmanager
def in_float64(model: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """For Witness(prepare=...): parameters, buffers and floating arguments of a model become float64.

    The weights are the float32 ones, exactly; random draws outside of the model stay what they were. Inside, dropout
    draws the same masks on a CPU; where it does not, `judge` sees that the baseline is implausibly far away.
    """
    import torch
    from torch.utils._pytree import tree_map

    def double(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    if any(t.is_floating_point() and t.dtype != torch.float64 for t in (*model.parameters(), *model.buffers())):
        model.double()
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield tree_map(double, (args, kwargs))
    finally:
        torch.set_default_dtype(usual)
