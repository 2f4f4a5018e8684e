"""Faults of a program that answers requests; onsets are calls of its model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.guard_sabotages.switch import fault, instead, on, part


def _whole(spoil: Any) -> Any:
    """For seams.at_model: the forward of the model itself, as spoil(plain, x, keys, values)."""
    return part("", lambda model, plain: lambda x, keys=None, values=None: spoil(plain, x, keys, values))


@fault(program="serve", latest=24)
def cached_output(seams: Any) -> None:
    """the output of a shape is kept: felt when the shape comes again, five calls later"""
    kept: dict[Any, Any] = {}
    seams.at_model(_whole(lambda plain, x, k, v: kept.setdefault(
        (x.shape, k is None or k.shape), plain(x, k, v))))  # fmt: skip


@fault(program="serve")
def rows_permuted(seams: Any) -> None:
    """answers come in another order than requests"""

    def permuted(plain: Any, x: Any, keys: Any, values: Any) -> Any:
        logits, k, v = plain(x, keys, values)
        return logits.flip(0), k, v

    seams.at_model(_whole(permuted))


@fault(program="serve", latest=24)
def stale_cache(seams: Any) -> None:
    """the newest key and value are not appended to the cache"""

    def stale(plain: Any, x: Any, keys: Any, values: Any) -> Any:
        logits, k, v = plain(x, keys, values)
        return (logits, k, v) if keys is None else (logits, torch.cat([keys, keys[:, -1:]], 1),
                                                    torch.cat([values, values[:, -1:]], 1))  # fmt: skip

    seams.at_model(_whole(stale))


@fault(program="serve", latest=24)
def last_token_dropped(seams: Any) -> None:
    """the last token of a prompt is replaced by the one before"""

    def dropped(plain: Any, x: Any, keys: Any, values: Any) -> Any:
        return plain(torch.cat([x[:, :-1], x[:, -2:-1]], 1) if x.shape[1] > 1 else x, keys, values)

    seams.at_model(_whole(dropped))


@fault(program="serve")
def int8_layer(seams: Any) -> None:
    """one linear layer in eight bits"""

    def low(layer: Any, plain: Any) -> Any:
        def forward(x: Any) -> Any:
            scale = layer.weight.abs().amax(1, keepdim=True) / 127
            return F.linear(x, (layer.weight / scale).round() * scale, layer.bias)

        return forward

    seams.at_model(part("up", low))


@fault(program="serve", latest=24)
def causal_lost(seams: Any) -> None:
    """prompts are read without the causal mask"""
    instead(F, "scaled_dot_product_attention",
            lambda plain: lambda q, k, v, is_causal=False, **_: plain(q, k, v))  # fmt: skip


@fault(program="serve")
def one_request_stale(seams: Any) -> None:
    """every seventh call gives the output of the last call of its shape"""
    kept: dict[Any, Any] = {}
    seen = {"calls": 0}

    def stale(plain: Any, x: Any, keys: Any, values: Any) -> Any:
        seen["calls"] += 1
        place = (x.shape, keys is None or keys.shape)
        old, kept[place] = kept.get(place), plain(x, keys, values)
        return old if on() and seen["calls"] % 7 == 0 and old is not None else kept[place]

    seams.at_model(_whole(stale))


@fault(program="serve")
def logits_bf16(seams: Any) -> None:
    """the head is computed in bfloat16"""

    def low(layer: Any, plain: Any) -> Any:
        return lambda x: F.linear(x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16()).float()

    seams.at_model(part("head", low))


def _answers(change: Any) -> Any:
    """For seams.at_model of a model of one input: its forward as change(number of the call, answer, the one before)."""
    seen: dict[str, Any] = {"calls": 0, "before": None}

    def changed(model: Any, plain: Any) -> Any:
        def forward(x: Any) -> Any:
            before, seen["before"] = seen["before"], plain(x)
            seen["calls"] += 1
            return seen["before"] if before is None else change(seen["calls"], seen["before"], before)

        return forward

    return part("", changed)


@fault(program="score")
def score_cached(seams: Any) -> None:
    """the answer is kept from then on"""
    kept: list[Any] = []
    seams.at_model(_answers(lambda number, answer, before: kept[0] if kept else kept.append(before) or before))


@fault(program="score")
def score_one_late(seams: Any) -> None:
    """each answer is the one before"""
    seams.at_model(_answers(lambda number, answer, before: before))


@fault(program="score", latest=22)
def score_sometimes_late(seams: Any) -> None:
    """every fifth answer is the one before"""
    seams.at_model(_answers(lambda number, answer, before: before if number % 5 == 0 else answer))


@fault(program="score")
def score_permuted(seams: Any) -> None:
    """answers come in another order than requests"""
    seams.at_model(_answers(lambda number, answer, before: answer.flip(0)))


@fault(program="score")
def score_last_lost(seams: Any) -> None:
    """the last sample of a batch is not computed"""
    seams.at_model(_answers(lambda number, answer, before: torch.cat([answer[:-1], torch.zeros_like(answer[:1])])))


@fault(program="score")
def score_bf16(seams: Any) -> None:
    """a layer is computed in bfloat16"""
    seams.at_model(part("up", lambda layer, plain: lambda x: F.linear(
        x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16()).float()))  # fmt: skip
