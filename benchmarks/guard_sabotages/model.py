"""Faults in the forward of the model: caches that go stale, lower precision, lost masks, statistics of batch norm."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.guard_sabotages.switch import fault, instead, on, part


def _attention(change: Any) -> None:
    """Replace F.scaled_dot_product_attention by change(plain, q, k, v, mask)."""
    instead(F, "scaled_dot_product_attention",
            lambda plain: lambda q, k, v, attn_mask=None, **kwargs: change(plain, q, k, v, attn_mask))  # fmt: skip


def _causal(mask: Any) -> Any:
    return torch.ones_like(mask).tril()


@fault(known=True)
def pad_attended(seams: Any) -> None:
    """padding is attended to"""
    _attention(lambda plain, q, k, v, mask: plain(q, k, v, attn_mask=_causal(mask)))


@fault(known=True)
def lowprec_layer(seams: Any) -> None:
    """attention's output is rounded to bfloat16"""
    _attention(lambda plain, q, k, v, mask: plain(q, k, v, attn_mask=mask).bfloat16().float())


@fault(known=True)
def lowprec_linear(seams: Any) -> None:
    """one linear layer is computed in bfloat16"""

    def low(layer: Any, plain: Any) -> Any:
        return lambda x: F.linear(x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16()).float()

    seams.at_model(part("out", low))


@fault(known=True)
def detach_branch(seams: Any) -> None:
    """no gradient goes through attention"""
    seams.at_model(part("out", lambda layer, plain: lambda x: plain(x).detach()))


@fault(known=True)
def detach_gate(seams: Any) -> None:
    """no gradient goes through the gate"""
    seams.at_model(part("gate", lambda layer, plain: lambda x: plain(x).detach()))


@fault(known=True)
def stale_weights(seams: Any) -> None:
    """a cached copy of a weight is renewed in every other call only"""
    seen: dict[str, Any] = {"calls": 0}

    def cached(layer: Any, plain: Any) -> Any:
        def forward(x: Any) -> Any:
            seen["calls"] += 1
            if seen["calls"] % 4 == 1:
                seen["weight"] = layer.weight.detach().clone()
            return F.linear(x, seen["weight"] + (layer.weight - layer.weight.detach()), layer.bias)

        return forward

    seams.at_model(part("up", cached))


@fault(known=True)
def gelu_tanh(seams: Any) -> None:
    """GELU by its tanh approximation"""
    instead(F, "gelu", lambda plain: lambda x, **_: plain(x, approximate="tanh"))


@fault(known=True)
def dropout_off(seams: Any) -> None:
    """no dropout, no draw"""
    instead(F, "dropout", lambda plain: lambda x, *_, **__: x)


@fault(known=True)
def dropout_frozen(seams: Any) -> None:
    """the first dropout mask is kept"""
    masks: dict[Any, Any] = {}

    def frozen(plain: Any) -> Any:
        def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if training and x.shape not in masks:
                masks[x.shape] = plain(torch.ones_like(x), p, True)
            return x * masks[x.shape] if training else x

        return dropout

    instead(F, "dropout", frozen)


@fault(known=True)
def dropout_rescale(seams: Any) -> None:
    """dropout's scale is 0.9 of what it should be"""
    instead(F, "dropout", lambda plain: lambda x, *args, **kwargs: plain(x, *args, **kwargs) * 0.9)


@fault(known=True)
def bn_eval(seams: Any) -> None:
    """batch norm goes into eval mode"""
    seams.at_model(part("batch_norm", lambda layer, plain: lambda x: (layer.eval(), plain(x))[1]))


@fault(known=True)
def bn_nomomentum(seams: Any) -> None:
    """the running statistics of batch norm stand still"""

    def still(layer: Any, plain: Any) -> Any:
        return lambda x: (setattr(layer, "momentum", 0.0), plain(x))[1]

    seams.at_model(part("batch_norm", still))


@fault(known=True)
def skip_samples(seams: Any) -> None:
    """the last sample's row is another's, without gradient"""
    seams.at_model(part("head", lambda layer, plain: lambda h: plain(torch.cat([h[:-1], h[:1].detach()]))))


@fault(known=True)
def nan_late(seams: Any) -> None:
    """outputs are NaN"""
    seams.at_model(part("head", lambda layer, plain: lambda h: plain(h) * float("nan")))


@fault()
def bn_twice(seams: Any) -> None:
    """the running statistics are updated twice in a forward (it was recomputed)"""
    seams.at_model(part("batch_norm", lambda layer, plain: lambda x: (plain(x.detach()), plain(x))[1]))


@fault()
def mask_reused(seams: Any) -> None:
    """every other dropout mask is the one before"""
    seen: dict[str, Any] = {}

    def reused(plain: Any) -> Any:
        def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            old = seen.pop("mask", None)
            fresh = plain(torch.ones_like(x), p, training)
            if old is not None and old.shape == x.shape and training:
                return x * old
            seen["mask"] = fresh
            return x * fresh

        return dropout

    instead(F, "dropout", reused)


@fault()
def causal_lost_long(seams: Any) -> None:
    """the causal mask is lost for more than ten tokens"""

    def lost(plain: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
        long = q.shape[1] > 10
        return plain(q, k, v, attn_mask=mask[:, -1:].expand_as(mask) if long else mask)

    _attention(lost)


@fault()
def softmax_bf16(seams: Any) -> None:
    """attention in bfloat16"""

    def low(plain: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return plain(q.bfloat16(), k.bfloat16(), v.bfloat16(), attn_mask=mask).float()

    _attention(low)


@fault()
def attention_scale(seams: Any) -> None:
    """the scale of attention is off by 2 %"""
    _attention(lambda plain, q, k, v, mask: plain(q * 1.02, k, v, attn_mask=mask))


@fault()
def norm_eps(seams: Any) -> None:
    """LayerNorm's eps is 1e-3 for 1e-5"""
    instead(F, "layer_norm", lambda plain: lambda x, shape, w, b, eps: plain(x, shape, w, b, 1e-3))


@fault()
def tie_broken(seams: Any) -> None:
    """the head keeps a copy of the tied weight"""
    seen: dict[str, Any] = {}

    def copied(layer: Any, plain: Any) -> Any:
        def forward(h: Any) -> Any:
            copy = seen.setdefault("weight", layer.weight.detach().clone())
            return F.linear(h, copy)

        return forward

    seams.at_model(part("head", copied))


@fault()
def replayed_input(seams: Any) -> None:
    """every fifth forward is of the inputs of the one before (a graph's static input)"""
    seen: dict[str, Any] = {"calls": 0, "x": None}

    def replayed(layer: Any, plain: Any) -> Any:
        def forward(x: Any) -> Any:
            seen["calls"] += 1
            old, seen["x"] = seen["x"], x
            stale = on() and seen["calls"] % 5 == 0 and old is not None and old.shape == x.shape
            return plain(old if stale else x)

        return forward

    seams.at_model(part("embedding", replayed))


@fault()
def rng_advanced(seams: Any) -> None:
    """one number more is drawn in each forward"""
    seams.at_model(part("head", lambda layer, plain: lambda h: (torch.rand(1), plain(h))[1]))
