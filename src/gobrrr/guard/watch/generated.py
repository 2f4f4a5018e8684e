"""What did one call of transformers' generate() make, row by row, whatever was batched with what?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gobrrr.guard.watch.inputs import IDS, MASK, tensors_of

LABEL = "generate() of "
"""Begins the label of a call that is all tokens of one sequence."""


def is_sampled(model: Any, kwargs: dict[str, Any]) -> bool:
    """Whether tokens are drawn."""
    return bool(_option(model, kwargs, "do_sample"))


def rows(model: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Iterator[tuple[list[Any], Any]]:
    """For each sequence what was given for it, without padding, and its new tokens up to the first that ends it."""
    made = getattr(result, "sequences", result)
    given, mask = tensors_of((args, {k: v for k, v in kwargs.items() if k != MASK})), kwargs.get(MASK)
    first = kwargs.get(IDS, next(iter(given), None))
    num = len(first) if first is not None else len(made)
    behind = kwargs.get("decoder_input_ids")
    begin = behind.shape[1] if behind is not None else 1
    if not model.config.is_encoder_decoder:
        begin = first.shape[1] if first is not None and not first.is_floating_point() else 0
    ends = _option(model, kwargs, "eos_token_id")
    ends = set(ends.tolist() if hasattr(ends, "tolist") else ends if isinstance(ends, (list, tuple)) else [ends])
    for number, row in enumerate(made):
        own = number * num // len(made)  # beams and several answers to a prompt come in a row
        told = [each for each in given if each.dim() and len(each) == num]
        kept = [_kept(each[own], mask[own] if mask is not None else None) for each in told]
        yield kept, row[begin : begin + _length(row[begin:].tolist(), ends)]


def _option(model: Any, kwargs: dict[str, Any], name: str) -> Any:
    """A setting of the call, even None, of the configuration that it is given, or of the model's own."""
    if name in kwargs:
        return kwargs[name]
    given = getattr(kwargs.get("generation_config"), name, None)
    return getattr(model.generation_config, name, None) if given is None else given


def _length(tokens: Iterable[int], ends: set[Any]) -> int:
    length = 0
    for token in tokens:
        length += 1
        if token in ends:
            break
    return length


def _kept(row: Any, mask: Any) -> Any:
    return row[mask.to(row.device) != 0] if mask is not None and row.shape[:1] == mask.shape else row
