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
"""Tokens guessed before the first check (proposed): two more after each that was all right, else one less."""


def int8_draft(model: Any) -> Any:
    """Return a copy of a transformers model in int8, for `model.generate(assistant_model=...)`; None off the CPU.

    It is made once, and anew where the weights were written to. Linear layers compute in int8, a quarter of float32's
    bytes; all other weights are the model's own. What it guesses the model checks, so greedy answers stay the same.
    """
    if model.device.type != "cpu":
        return None
    return made_once(model, _in_int8, _KEPT)


def _in_int8(model: Any) -> Any:
    vars(model).pop(_KEPT, None)
    made = copy.deepcopy(model, {id(each): each for each in (*model.parameters(), *model.buffers())})
    for name, part in list(made.named_modules()):
        if type(part).__name__ == "Conv1D":  # transformers' own linear layer, its weights turned
            rows, columns = part.weight.shape
            linear = nn.Linear(rows, columns, device="meta")
            linear.weight, linear.bias = nn.Parameter(part.weight.detach().t()), part.bias
            parent, _, own = name.rpartition(".")
            setattr(made.get_submodule(parent), own, linear)
    guessing = {"num_assistant_tokens": GUESSES, "num_assistant_tokens_schedule": "heuristic"}
    vars(made.generation_config).update(guessing, assistant_confidence_threshold=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is called deprecated
        per_row = {nn.Linear: torch.ao.quantization.per_channel_dynamic_qconfig}
        return torch.ao.quantization.quantize_dynamic(made, per_row, inplace=True)  # type: ignore[no-untyped-call]
