"""Dropout that draws the same mask for the same elements, in whatever order a tensor lies in memory.

torch fills a mask in the order of memory: a model in channels_last gets another mask from the same random state, and
nothing after it can be compared. In watched runs the mask is drawn in the order of indices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def same_masks_in_any_layout() -> Callable[[], None]:
    """From now on, until what it gives is called. Only tensors that are not contiguous take another way than torch's:
    noise of their dtype, drawn and scaled as torch does it (at::dropout), but contiguous."""
    from torch.nn import functional

    with contextlib.suppress(Exception):  # dynamo lists torch's functions once: never ours
        from torch._dynamo import trace_rules

        trace_rules.get_torch_obj_rule_map()
    plain = functional.dropout

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or not 0.0 < p < 1.0 or input.is_contiguous():
            return plain(input, p, training, inplace)
        noise = input.new_empty(input.shape).bernoulli_(1 - p).div_(1 - p)
        return input.mul_(noise) if inplace else input * noise

    dropout.__wrapped__ = plain  # type: ignore[attr-defined]  # who looks for torch's own finds it (inspect.unwrap)
    functional.dropout = dropout
    return lambda: setattr(functional, "dropout", plain)
