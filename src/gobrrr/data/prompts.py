"""Prompts for transformers' generate(), many in one call: padded on the side that the model needs, their common
beginning read once, and given back as each alone would be.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

IDS, MASK = "input_ids", "attention_mask"
AT_ONCE = 16
"""Prompts in a call (proposed: weights are read once for all of them; rates of larger batches would settle it)."""

FEWEST_SHARED = 16
"""Tokens that all prompts of a batch begin with, from which on they are read once (proposed: a call of its own costs
about what a token does)."""

reading_ahead = 0
"""Identifier of the thread in which a model reads what prompts begin with, 0 for none: who watches takes it for a part
of the generate() that follows."""

ALONE: dict[str, Any] = dict.fromkeys(
    ("stop_strings", "stopping_criteria", "logits_processor", "prefix_allowed_tokens_fn", "sequence_bias",
     "bad_words_ids", "exponential_decay_length_penalty", "watermarking_config", "penalty_alpha", "max_time",
     "streamer", "assistant_model", "prompt_lookup_num_tokens", "negative_prompt_ids")
) | {
    "num_return_sequences": 1, "return_dict_in_generate": False, "min_length": 0, "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0, "repetition_penalty": 1, "encoder_repetition_penalty": 1, "guidance_scale": 1,
    "token_healing": False,
}  # fmt: skip
"""Options that see the padding, end a row unseen or make rows something else, each with what does nothing."""


def generated(model: Any, prompts: Iterable[Any], at_once: int = AT_ONCE, **options: Any) -> Iterator[Any]:
    """Yield what model.generate(prompt, **options) gives for each prompt, in order, of `at_once` prompts in a call.

    A prompt is a tensor of one row, or a mapping with such (a tokenizer's). Prompts that cannot be padded are batched
    where they have one shape: those that are no ids or have tensors of other names, and all where padding would move
    positions in the model. What all padded prompts of a batch begin with (a system's prompt, examples) is read once
    where the model keeps plain keys and values. `options` must hold max_new_tokens: a max_length counts padding.
    Answers to the prompts before one that raises are yielded first.
    """
    if option(model, options, "max_new_tokens") is None:
        raise ValueError("generated() needs max_new_tokens: a max_length counts padding")
    if wrong := [name for name, none in ALONE.items() if option(model, options, name) not in (None, none)]:
        raise ValueError(f"generated() cannot batch prompts with {', '.join(wrong)}: call generate() for each")
    waiting = iter(prompts)
    while True:
        batch: list[dict[str, Tensor]] = []
        failed = None
        try:
            batch.extend(_named(model, each) for each in itertools.islice(waiting, at_once))
        except Exception as error:
            failed = error
        yield from _together(model, batch, options)
        if failed is not None:
            raise failed
        if not batch:
            return


def _named(model: Any, prompt: Any) -> dict[str, Tensor]:
    if isinstance(prompt, Mapping) or hasattr(prompt, "keys"):
        named = {name: prompt[name] for name in prompt.keys()}
    else:
        named = {IDS if not prompt.is_floating_point() else model.main_input_name: prompt}
    for name, value in named.items():
        if value.dim() < 2 or len(value) != 1:
            raise ValueError(f"a prompt must have one row; {name} has the shape {tuple(value.shape)}")
    return named


def _together(model: Any, batch: list[dict[str, Tensor]], options: dict[str, Any]) -> Iterator[Any]:
    made = _made(model, batch, options) if len(batch) > 1 else None
    if made is None:
        yield from (model.generate(**each, **options) for each in batch)
        return
    ends, encodes = set(ends_of(model, options)), model.config.is_encoder_decoder
    longest = max(each[IDS].shape[1] if IDS in each else 0 for each in batch)
    for number, row in enumerate(made):
        prompt = batch[number].get(IDS) if not encodes else None
        behind = batch[number].get("decoder_input_ids")
        begin = longest if prompt is not None else 0 if not encodes else 1 if behind is None else behind.shape[1]
        length = length_of(row[begin:].tolist(), ends)
        first = prompt[0] if prompt is not None else row[:begin]
        yield torch.cat([first.to(row.device), row[begin : begin + length]])[None]


def _made(model: Any, batch: list[dict[str, Tensor]], options: dict[str, Any]) -> Any:
    """Return what one call makes of a batch; None where it cannot be one, or where one of its prompts raises."""
    shapes = {tuple((name, value.shape) for name, value in each.items()) for each in batch}
    encodes, pad = model.config.is_encoder_decoder, option(model, options, "pad_token_id")
    if not encodes and not all({IDS, "inputs_embeds"} & each.keys() for each in batch):
        return None  # nobody knows where the answer begins in what is given back
    unmasked = pad if encodes else None  # releases differ in what an encoder makes of padding without a mask
    padded = (encodes or _places_by_mask(model)) and all(_may_be_padded(each, unmasked) for each in batch)
    if not padded and len(shapes) > 1:
        return None
    given = _padded(model, batch, options) if padded else {n: torch.cat([e[n] for e in batch]) for n in batch[0]}
    try:
        kept = _beginning(model, given, options) if padded and not encodes else {}
        return model.generate(**given, **kept, **options)
    except Exception:  # each alone then, so that those before the one that raises have their answers
        return None


def _beginning(model: Any, given: dict[str, Tensor], options: dict[str, Any]) -> dict[str, Any]:
    """Return generate()'s option with keys and values of the tokens that all rows begin with, read once; none where
    they are few, or where the model keeps something else."""
    ids, mask = given[IDS], given[MASK]
    missing = (mask == 0).sum(1).tolist()
    shared = _shared(ids, mask, missing)
    own = {"cache", "past_key_values"} & options.keys() or option(model, options, "cache_implementation")
    beams, keeps = option(model, options, "num_beams"), option(model, options, "use_cache")
    if shared < FEWEST_SHARED or own or beams not in (None, 1) or not keeps:
        return {}
    kinds = getattr(model.config, "layer_types", None) or [getattr(model.config, "sliding_window", None)]
    if any(kind not in (None, "full_attention") for kind in kinds):
        return {}  # their layers keep a window
    takes = inspect.signature(model.forward).parameters
    if takes.keys() & options.keys() - {"use_cache"}:
        return {}  # they belong to reading too
    name = "cache" if "cache" in takes else "past_key_values"  # transformers 5.24 has renamed it
    few = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
    made = getattr(_read(model, ids[:1, missing[0] :][:, :shared], few), name, None)
    layers = getattr(made, "layers", [])
    if type(made).__name__ != "DynamicCache" or {type(each).__name__ for each in layers} != {"DynamicLayer"}:
        return {}  # it keeps something else, here or beside its layers
    for layer in layers:  # one row of (1, heads, tokens, size) becomes all, each moved behind its padding
        for kind in ("keys", "values"):
            one = getattr(layer, kind)[0]
            moved = [torch.nn.functional.pad(one, (0, 0, columns, 0))[:, :shared] for columns in missing]
            setattr(layer, kind, torch.stack(moved))
    return {name: made}


def _shared(ids: Tensor, mask: Tensor, missing: list[int]) -> int:
    """Return how many tokens all rows begin with behind their padding, the last column left out; 0 where a mask has
    holes."""
    if not all(bool(row[begin:].all()) for row, begin in zip(mask, missing, strict=True)):
        return 0
    length = min(ids.shape[1] - max(missing), ids.shape[1] - 1)
    rows = torch.stack([row[begin : begin + length] for row, begin in zip(ids, missing, strict=True)])
    return int((rows == rows[:1]).all(0).long().cumprod(0).sum())


def _read(model: Any, ids: Tensor, few: dict[str, int]) -> Any:
    """Return what the model gives for ids alone; None where it wants more, which generate() would give it."""
    global reading_ahead
    reading_ahead = get_ident()
    try:
        with torch.no_grad():
            return model(ids, use_cache=True, **few)
    except Exception:
        return None
    finally:
        reading_ahead = 0


def _may_be_padded(prompt: dict[str, Tensor], unmasked: int | None) -> bool:
    """Whether it is ids alone, with a mask of their shape or none; without one `unmasked` must not be among them."""
    if IDS not in prompt or not prompt.keys() <= {IDS, MASK} or not prompt[IDS].numel():
        return False
    if MASK in prompt:
        return prompt[MASK].shape == prompt[IDS].shape
    return unmasked is None or not bool((prompt[IDS] == unmasked).any())


def _places_by_mask(model: Any) -> bool:
    """Whether padding on the left moves no position: generate() counts them by the mask, and no length changes them.

    41 of the 196 causal models of transformers 5.24 count otherwise (bart, bloom, whisper), and some keep a state.
    """
    own, config = getattr(type(model), "prepare_inputs_for_generation", None), model.config
    ropes = [getattr(config, name, None) or {} for name in ("rope_parameters", "rope_scaling")]
    ropes += [inner for each in ropes if isinstance(each, dict) for inner in each.values()]  # by kind of layer
    kinds = {each.get("rope_type", each.get("type")) for each in ropes if isinstance(each, dict)}
    return (
        "position_ids" in inspect.signature(model.forward).parameters
        and getattr(own, "__module__", "") == "transformers.generation.utils"
        and not getattr(model, "_is_stateful", False)
        and not any(hasattr(config, name) for name in ("vision_config", "audio_config"))
        and not kinds & {"dynamic", "longrope"}
    )


def _padded(model: Any, batch: list[dict[str, Tensor]], options: dict[str, Any]) -> dict[str, Tensor]:
    """Left of what a decoder goes on with, right of what an encoder reads."""
    pad, ends = option(model, options, "pad_token_id"), ends_of(model, options)
    pad = pad if pad is not None else next(iter(ends), None)
    longest = max(each[IDS].shape[1] for each in batch)

    def mask(each: dict[str, Tensor]) -> Tensor:
        """As generate() takes it: ids that are padding and no end are masked."""
        ids = each[IDS]
        return each.get(MASK, ids.ne(pad).long() if pad is not None and pad not in ends else torch.ones_like(ids))

    def fill(row: Tensor, filling: int) -> Tensor:
        missing = longest - row.shape[1]
        sides = (0, missing) if model.config.is_encoder_decoder else (missing, 0)
        return torch.nn.functional.pad(row, sides, value=filling)

    return {IDS: torch.cat([fill(each[IDS], pad or 0) for each in batch]),
            MASK: torch.cat([fill(mask(each), 0) for each in batch])}  # fmt: skip


def length_of(tokens: list[int], ends: Container[int]) -> int:
    """Return the number of tokens up to the first that ends a sequence."""
    return next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))


def ends_of(model: Any, options: Mapping[str, Any]) -> list[int]:
    """Return the tokens that end a sequence."""
    found = option(model, options, "eos_token_id")
    found = found.tolist() if isinstance(found, Tensor) else found
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]


def option(model: Any, options: Mapping[str, Any], name: str) -> Any:
    """Return a setting as generate() takes it: the call's, even None, its configuration's, or the model's own."""
    if name in options:
        return options[name]
    given = getattr(options.get("generation_config"), name, None)
    return getattr(model.generation_config, name, None) if given is None else given
