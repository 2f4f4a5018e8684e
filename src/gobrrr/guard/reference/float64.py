"""The same program in float64: the reference from which errors are counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


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
