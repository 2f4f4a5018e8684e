"""Attention through torch's fused kernel: for models that know several implementations, and for what is hand-made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy


class SdpaAttention(Remedy):
    """model.set_attn_implementation("sdpa") on models of transformers; elsewhere products, softmax and product are
    found in the graph that dynamo captures of the model, which then runs as ever, op by op."""

    name = "sdpa_attention"
    title = "computes attention in one fused kernel instead of products, softmax and dropout of its own"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    conflicts = ("compile_reduce_overhead", "compile_max_autotune")
    by_hand = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    unseen = (
        "weights of attention are made only where output_attentions asks for them: a hook that reads them finds none"
    )

    def apply(self, seams: Seams) -> None:
        def switch(module: Any) -> None:
            if not _switched(module, seams, partial(seams.applied, self.name)):
                _replaced(module, seams, partial(seams.applied, self.name))

        seams.at_model(switch)


def _switched(module: Any, seams: Seams, said: Callable[[str], None]) -> bool:
    """Whether the model knows several implementations; then it uses torch's from now on."""
    for part in module.modules():
        config, change = getattr(part, "config", None), getattr(part, "set_attn_implementation", None)
        before = getattr(config, "_attn_implementation", None)
        if change is None or before is None:
            continue
        if before != "sdpa":
            change("sdpa")
            seams.undo(partial(change, before))
            seams.replace(part, "forward", replaced(part, partial(_as_before_where_asked, change, before)))
            said(f"{type(part).__name__}, {before} before")
        return True
    return False


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


def _replaced(module: Any, seams: Seams, said: Callable[[str], None]) -> None:
    """Let dynamo capture the model, replace the attention in its graphs, and run them."""
    from gobrrr.remedies.compile.compile import compile_in_place

    if not any(True for _ in module.parameters()) or hasattr(module, "_orig_mod"):
        return
    replacements: list[int] = []
    compiled = getattr(module, "_compiled_call_impl", None) is not None  # by the remedy compile: it gets our graphs

    def backend(graph: Any, inputs: Any) -> Any:
        from gobrrr.remedies.layers.attention_pattern import replace

        if count := replace(graph):
            replacements.append(count)
            said(f"{type(module).__name__}, {count} times")
        if not compiled:
            return graph.forward
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, inputs)

    compile_in_place(module, seams, backend=backend)
    if not compiled:
        module._compiled_call_impl = _OnceWithout(module, replacements)


class _OnceWithout:
    """A module's captured call; one in which nothing was replaced is the last."""

    def __init__(self, module: Any, replacements: list[int]) -> None:
        self._module, self._call, self._replacements = module, module._compiled_call_impl, replacements

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._call(*args, **kwargs)
        if self._module._compiled_call_impl is self:
            self._module._compiled_call_impl = self._call if self._replacements else None
        return found
