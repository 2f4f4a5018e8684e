"""Whether copies of samples could be told from the samples by what the program writes, or by what hangs on them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

Span = tuple[int, int]


def why_shared(samples: Iterable[Any]) -> str:
    """Why not, or nothing: parts that lie in the same memory, which a write into one would change in the other; tensors
    with attributes; arrays that may not be written."""
    spans = []
    for leaf in tree_leaves(list(samples)):
        if isinstance(leaf, torch.Tensor):
            if vars(leaf):
                return "its samples have tensors with attributes of their own"
            spans += _span_of_tensor(leaf)
        elif isinstance(leaf, np.ndarray):
            if not leaf.flags.writeable:
                return "its samples have arrays that may not be written"
            spans += _span_of_array(leaf)
    spans.sort()
    overlaps = any(end > start for (_, end), (start, _) in pairwise(spans))
    return "parts of its samples lie in the same memory" if overlaps else ""


def _span_of_tensor(leaf: torch.Tensor) -> list[Span]:
    if leaf.layout != torch.strided or leaf.device.type != "cpu" or not leaf.numel():
        return []  # what is kept of such is another's to refuse
    reach = sum((length - 1) * stride for length, stride in zip(leaf.shape, leaf.stride(), strict=True))
    return [(leaf.data_ptr(), leaf.data_ptr() + (reach + 1) * leaf.element_size())]


def _span_of_array(leaf: np.ndarray[Any, Any]) -> list[Span]:
    if not leaf.size:
        return []
    reaches = [(length - 1) * stride for length, stride in zip(leaf.shape, leaf.strides, strict=True)]
    start = leaf.__array_interface__["data"][0]
    return [(start + sum(r for r in reaches if r < 0), start + sum(r for r in reaches if r > 0) + leaf.itemsize)]
