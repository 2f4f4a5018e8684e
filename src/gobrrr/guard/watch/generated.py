"""Sequences that one call of transformers' generate() made, row by row, whatever was batched with what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gobrrr.guard.watch.inputs import IDS, MASK, tensors_of


def rows(
    model: Any, args: Any, kwargs: dict[str, Any], result: Any, begin: int | None = None
) -> Iterator[tuple[list[Any], Any]]:  # fmt: skip
    """Yield for each sequence what was given for it, without padding, and its new tokens up to the first that ends it.

    `begin`: length of a decoder's sequences before the first new token, where it was seen: without a prompt generate()
    puts a token of its own first.
    """
    from gobrrr.data.prompts import ends_of, length_of

    made, ends = getattr(result, "sequences", result), set(ends_of(model, kwargs))
    given, mask = tensors_of((args, {k: v for k, v in kwargs.items() if k != MASK})), kwargs.get(MASK)
    first = kwargs.get(IDS, next(iter(given), None))
    num = len(first) if first is not None else len(made)
    behind = kwargs.get("decoder_input_ids")
    if model.config.is_encoder_decoder:
        begin = behind.shape[1] if behind is not None else 1
    elif begin is None:
        begin = first.shape[1] if first is not None and not first.is_floating_point() else 0
    for number, row in enumerate(made):
        own = number * num // len(made)  # beams and several answers to a prompt come in a row
        told = [each for each in given if each.dim() and len(each) == num]
        kept = [_kept(each[own], mask[own] if mask is not None else None) for each in told]
        yield kept, row[begin : begin + length_of(row[begin:].tolist(), ends)]


def _kept(row: Any, mask: Any) -> Any:
    return row[mask.to(row.device) != 0] if mask is not None and row.shape[:1] == mask.shape else row
