"""Prompts for transformers' generate(), many in one call: padded on the side that the model needs, and given back as
each alone would be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

IDS, MASK = "input_ids", "attention_mask"
AT_ONCE = 16
"""Prompts in a call (proposed: weights are read once for all of them; rates of larger batches would settle it)."""


def generated(model: Any, prompts: Iterable[Any], at_once: int = AT_ONCE, **options: Any) -> Iterator[Any]:
    """Yield what model.generate(prompt, **options) gives for each prompt, in order, of `at_once` prompts in a call.

    A prompt is a tensor of one row, or a mapping with such (a tokenizer's). Prompts that cannot be padded, for they are
    no ids or have tensors of other names, are batched where they have one shape. `options` must hold max_new_tokens:
    a max_length counts padding.
    """
    waiting = iter(prompts)
    while batch := [_named(model, each) for each in itertools.islice(waiting, at_once)]:
        yield from _together(model, batch, options)


def _named(model: Any, prompt: Any) -> dict[str, Tensor]:
    if isinstance(prompt, Mapping) or hasattr(prompt, "keys"):
        return {name: prompt[name] for name in prompt.keys()}
    return {IDS if not prompt.is_floating_point() else model.main_input_name: prompt}


def _together(model: Any, batch: list[dict[str, Tensor]], options: dict[str, Any]) -> Iterator[Any]:
    shapes = {tuple((name, value.shape) for name, value in each.items()) for each in batch}
    padded = all(each.keys() <= {IDS, MASK} and IDS in each and each[IDS].shape[0] == 1 for each in batch)
    if len(batch) == 1 or not (padded or len(shapes) == 1):
        for each in batch:
            yield model.generate(**each, **options)
        return
    given = _padded(model, batch, options) if padded else {n: torch.cat([e[n] for e in batch]) for n in batch[0]}
    made = model.generate(**given, **options)
    ends, encodes = set(_ends(model, options)), model.config.is_encoder_decoder
    for number, row in enumerate(made):
        prompt = batch[number].get(IDS) if not encodes else None
        begin = given[IDS].shape[1] if prompt is not None else int(encodes)
        tokens = row[begin:].tolist()
        length = next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))
        first = prompt[0] if prompt is not None else row[:begin]
        yield torch.cat([first.to(row.device), row[begin : begin + length]])[None]


def _padded(model: Any, batch: list[dict[str, Tensor]], options: dict[str, Any]) -> dict[str, Tensor]:
    """Left of what a decoder goes on with, right of what an encoder reads."""
    ids = [each[IDS][0] for each in batch]
    masks = [each[MASK][0] if MASK in each else torch.ones_like(each[IDS][0]) for each in batch]
    pad, longest = _option(model, options, "pad_token_id"), max(map(len, ids))
    value = pad if pad is not None else next(iter(_ends(model, options)), 0)

    def fill(row: Tensor, filling: int) -> Tensor:
        missing = longest - len(row)
        sides = (0, missing) if model.config.is_encoder_decoder else (missing, 0)
        return torch.nn.functional.pad(row, sides, value=filling)

    return {IDS: torch.stack([fill(row, value) for row in ids]), MASK: torch.stack([fill(row, 0) for row in masks])}


def _ends(model: Any, options: dict[str, Any]) -> list[int]:
    """Tokens that end a sequence."""
    found = _option(model, options, "eos_token_id")
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]


def _option(model: Any, options: dict[str, Any], name: str) -> Any:
    given = options.get(name)
    return getattr(options.get("generation_config") or model.generation_config, name) if given is None else given
