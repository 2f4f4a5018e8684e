"""Dropout that draws the same mask for the same elements, in whatever order a tensor lies in memory; or none at all.

torch fills a mask in the order of memory: a model in channels_last gets another mask from the same random state, and
nothing after it can be compared. In watched runs the mask is drawn in the order of indices. A remedy that gives a model
fewer elements (trim_padding) has no mask in common with the plain program: both are watched without dropout.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
from torch.nn import functional

from gobrrr.capture.hooks.lookup import Patches

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
DROPOUTS = {
    "dropout": True, "dropout1d": True, "dropout2d": True, "dropout3d": True, "alpha_dropout": False,
    "feature_alpha_dropout": False,
}  # fmt: skip
"""Dropouts of torch.nn.functional, and whether they draw where nobody says that the model trains."""


def same_masks_in_any_layout(patches: Patches) -> None:
    """From now on, until `patches` are taken out. Only tensors that are not contiguous take another way than torch's:
    noise of their dtype, drawn and scaled as torch does it (at::dropout), but contiguous."""
    _listed_by_dynamo()
    plain = functional.dropout

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or not 0.0 < p < 1.0 or input.is_contiguous():
            return plain(input, p, training, inplace)
        noise = input.new_empty(input.shape).bernoulli_(1 - p).div_(1 - p)
        return input.mul_(noise) if inplace else input * noise

    dropout.__wrapped__ = plain  # type: ignore[attr-defined]  # who looks for torch's own finds it (inspect.unwrap)
    patches.replace(functional, "dropout", dropout)


def none(patches: Patches) -> None:
    """No dropout in torch.nn.functional, in attention or between the layers of an LSTM, until `patches` are taken out.
    One that a model draws by other means stays, and shows as other random draws."""
    _listed_by_dynamo()
    attention = functional.scaled_dot_product_attention

    def scaled_dot_product_attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *rest: Any, **more: Any
    ) -> Any:
        with _as_with(query, dropout_p):
            return attention(query, key, value, attn_mask, 0.0, *rest, **more)

    for name, draws in DROPOUTS.items():
        instead: Any = functools.partial(_nothing_dropped, draws)
        instead.__name__ = name  # dynamo asks every function of torch for it
        patches.replace(functional, name, instead)
    patches.replace(functional, "scaled_dot_product_attention", scaled_dot_product_attention)
    for name in RECURRENT:
        patches.replace(torch._VF, name, functools.partial(_undropped, getattr(torch._VF, name)))


def _as_with(query: Any, dropout_p: float) -> contextlib.AbstractContextManager[None]:
    """On a CPU SDPA has no kernel that drops out: what is computed is what the program runs, in its precision."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    drops = dropout_p > 0 and query.device.type == "cpu"
    return sdpa_kernel(SDPBackend.MATH) if drops else contextlib.nullcontext()


def _nothing_dropped(
    draws: bool, input: Any, p: float = 0.5, training: bool | None = None, inplace: bool = False
) -> Any:
    """Return a copy where dropout would: what a program writes into the result must not reach the input."""
    drops = p > 0 and (draws if training is None else training)
    return input.clone() if drops and not inplace else input


def _undropped(recurrent: Any, *args: Any) -> Any:
    """Called as torch.nn.LSTM does it: (..., has biases, number of layers, dropout, training, ...)."""
    chance = next(i for i, each in enumerate(args) if isinstance(each, bool)) + 2
    return recurrent(*args[:chance], 0.0, *args[chance + 1 :])


def _listed_by_dynamo() -> None:
    """It lists torch's functions once: never ours."""
    with contextlib.suppress(Exception):
        from torch._dynamo import trace_rules

        trace_rules.get_torch_obj_rule_map()
