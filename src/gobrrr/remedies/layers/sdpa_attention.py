"""Attention through torch's fused kernel, for models that know several implementations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy


class SdpaAttention(Remedy):
    """model.set_attn_implementation("sdpa") on models of transformers."""

    name = "sdpa_attention"
    title = "computes attention in one fused kernel instead of products, softmax and dropout of its own"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    by_hand = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    unseen = (
        "weights of attention are made only where output_attentions asks for them: a hook that reads them finds none"
    )

    def apply(self, seams: Seams) -> None:
        def switch(module: Any) -> None:
            for part in module.modules():
                config, change = getattr(part, "config", None), getattr(part, "set_attn_implementation", None)
                before = getattr(config, "_attn_implementation", None)
                if change is None or before is None:
                    continue
                if before != "sdpa":
                    change("sdpa")
                    seams.undo(partial(change, before))
                    seams.replace(part, "forward", replaced(part, partial(_as_before_where_asked, change, before)))
                    seams.applied(self.name, f"{type(part).__name__}, {before} before")
                return
            seams.declined(self.name, "attention of its own is changed in the source: F.scaled_dot_product_attention")

        seams.at_model(switch)


def _as_before_where_asked(
    change: Callable[[str], None], before: str, model: Any, forward: Any, *args: Any, **kwargs: Any
) -> Any:
    """The fused kernel gives no weights away."""
    asked = kwargs.get("output_attentions")
    if not (getattr(model.config, "output_attentions", False) if asked is None else asked):
        return forward(*args, **kwargs)
    change(before)
    try:
        return forward(*args, **kwargs)
    finally:
        change("sdpa")
