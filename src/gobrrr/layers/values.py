"""Tensors in containers and dataclasses, as models take and give them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a value with its tensors changed, in containers and dataclasses; those without tensors stay the same."""
    return tree_map(lambda each: _leaf(each, change), value)


def _leaf(each: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(each, Tensor):
        return change(each)
    if not dataclasses.is_dataclass(each) or isinstance(each, type):
        return each
    before = {field.name: getattr(each, field.name, None) for field in dataclasses.fields(each)}
    after = mapped(before, change)
    if all(old is new for old, new in zip(tree_leaves(before), tree_leaves(after), strict=True)):
        return each
    made = copy.copy(each)
    put = object.__setattr__ if type(each).__dataclass_params__.frozen else setattr  # type: ignore[attr-defined]
    for name, new in after.items():
        put(made, name, new)
    return made


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in containers and dataclasses."""
    found: list[Tensor] = []
    mapped(value, lambda each: (found.append(each), each)[1])  # type: ignore[func-returns-value]
    return found
