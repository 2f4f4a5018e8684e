"""Attention through torch's fused kernel, for models that know several implementations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class SdpaAttention(Remedy):
    """model.set_attn_implementation("sdpa") on models of transformers."""

    name = "sdpa_attention"
    title = "computes attention in one fused kernel instead of products, softmax and dropout of its own"
    safety = "tolerance"
    place = "model"
    codes = ("BRR105",)
    by_hand = 'AutoModel.from_pretrained(..., attn_implementation="sdpa")'

    def apply(self, seams: Seams) -> None:
        def switch(module: Any) -> None:
            for part in module.modules():
                config, change = getattr(part, "config", None), getattr(part, "set_attn_implementation", None)
                before = getattr(config, "_attn_implementation", None)
                if change is None or before in (None, "sdpa"):
                    continue
                change("sdpa")
                seams.undo(partial(change, before))
                seams.applied(self.name, f"{type(part).__name__}, {before} before")
                return

        seams.at_model(switch)


REMEDY = SdpaAttention()
