"""A copy of a model in int8 that guesses its tokens."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn

from gobrrr.layers.ready import made_once

_KEPT = "_gobrrr_draft"
GUESSES = 8
"""Tokens guessed before the first check (proposed): two more after a round that was right throughout, else one less."""
MOST = 32
"""Tokens guessed before the first check of a later answer (proposed)."""


def int8_draft(model: Any) -> Any:
    """Return a copy of a transformers model in int8, for `model.generate(assistant_model=...)`; None where the model is
    not float32 on the CPU, or keeps a state that cannot go back.

    It is made once, and anew where the weights were written to. Linear layers and Conv1D compute in int8, a quarter of
    float32's bytes; all other weights are the model's own. The model checks what it guesses: greedy answers stay.
    """
    goes_back = not model._is_stateful and model._supports_default_dynamic_cache()
    whole = model.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    if model.device.type != "cpu" or not whole or not goes_back:
        return None
    made: Any = made_once(model, _in_int8, _KEPT)
    told = made.generation_config
    told.num_assistant_tokens = min(told.num_assistant_tokens, MOST)  # generate() leaves there what it has come to
    return made


def _in_int8(model: Any) -> Any:
    copies = (each for name, each in vars(model).items() if name.startswith("_gobrrr_"))
    shared = {id(each): each for each in (*model.parameters(), *model.buffers(), *copies)}
    made = copy.deepcopy(model, shared)
    for name, part in list(made.named_modules()):
        turned = type(part).__name__ == "Conv1D"  # transformers' own linear layer
        if turned or type(part) is nn.Linear:
            parent, _, own = name.rpartition(".")
            weight = part.weight.detach().t() if turned else part.weight.detach()
            setattr(made.get_submodule(parent), own, _rounded(weight, part.bias))
    guessing = {"num_assistant_tokens": GUESSES, "num_assistant_tokens_schedule": "heuristic"}
    vars(made.generation_config).update(guessing, assistant_confidence_threshold=0.0)
    return made.eval()


def _rounded(weight: Any, bias: Any) -> Any:
    """Return a layer of weights (outputs x inputs) in int8, each output with a scale of its own."""
    scales = (weight.abs().amax(1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own quantised tensors deprecated
        whole = torch.quantize_per_channel(weight.contiguous(), scales, zeros, 0, torch.qint8)
    made: Any = torch.ao.nn.quantized.dynamic.Linear(weight.shape[1], weight.shape[0])  # type: ignore[no-untyped-call]
    made.set_weight_bias(whole, bias)
    return made
