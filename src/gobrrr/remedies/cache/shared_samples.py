"""Whether copies of samples could be told from the samples by what the program writes, or by what hangs on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

Span = tuple[int, int]
SAME = "parts of its samples lie in the same memory"
HELD = "its samples are parts of what its data set holds, which a write into one would reach"


def why_shared(samples: Iterable[Any]) -> str:
    """Say why samples cannot be kept; empty where they can. Reasons: parts in the same memory, which a write into one
    would change in the other; tensors with attributes; arrays that may not be written; and memory with gaps, which a
    copy would not have."""
    given = list(samples)
    spans = []
    for leaf in tree_leaves(given):
        if isinstance(leaf, torch.Tensor):
            if vars(leaf):
                return "its samples have tensors with attributes of their own"
            leaf_spans = _span_of_tensor(leaf)
        elif isinstance(leaf, np.ndarray):
            if not leaf.flags.writeable:
                return "its samples have arrays that may not be written"
            leaf_spans = _span_of_array(leaf)
        else:
            continue
        if any(end - start != leaf.nbytes for start, end in leaf_spans):
            return "its samples are views with gaps in their memory"
        spans += leaf_spans
    containers = [id(each) for each in _containers(given)]
    return SAME if _overlap(spans) or len(set(containers)) < len(containers) else ""


def why_held(sample: Any, again: Any) -> str:
    """Say why not, or nothing, by two results for one index, both alive: memory, a list or a dict that both share is
    the data set's own."""
    both = [set(map(id, _containers([each]))) for each in (sample, again)]
    spans = [_spans(each) for each in (sample, again)]
    shared = _overlap([*spans[0], *spans[1]]) and not (_overlap(spans[0]) or _overlap(spans[1]))
    return HELD if shared or both[0] & both[1] else ""


def _spans(sample: Any) -> list[Span]:
    found: list[Span] = []
    for leaf in tree_leaves(sample):
        found += _span_of_tensor(leaf) if isinstance(leaf, torch.Tensor) else []
        found += _span_of_array(leaf) if isinstance(leaf, np.ndarray) else []
    return found


def _overlap(spans: Iterable[Span]) -> bool:
    return any(end > start for (_, end), (start, _) in pairwise(sorted(spans)))


def _containers(samples: Iterable[Any]) -> Iterator[Any]:
    """Lists, dicts and sets within samples: the program may write into them."""
    for each in samples:
        if isinstance(each, list | dict | set | bytearray):
            yield each
        if isinstance(each, Mapping):
            yield from _containers(each.values())
        elif isinstance(each, Sequence) and not isinstance(each, str | bytes | bytearray):
            yield from _containers(each)


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
