"""Batch norm of a model that only infers goes into the weights before it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.remedies.mechanism.changed import counts
from gobrrr.remedies.mechanism.forked_copy import TriedApart, apart
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy

CLOSE, CLOSE_HALF = 1e-3, 5e-2
"""Relative errors of an output (Frobenius norm) up to which two are alike, in float32 and below: folds come to 1e-6 and
1e-2, one in the wrong place to 0.2 and more. The guard judges the program by what it knows of its own rounding."""
Pair = tuple[int, int, int]
"""Numbers of the module whose forward was followed, of a layer and of its norm, among all of the model's."""


class FoldBatchNorm(Remedy):
    """A convolution or Linear whose output its batch norm alone is given computes what both do, in a model in eval()
    mode. Who is given what is read off the forward by torch.fx: where it cannot follow one (that depends on values),
    off those of its children. Then the model's first call is made twice, as it is and folded, and nothing is folded
    where the results differ. Both in a copy of the process."""

    name = "fold_batch_norm"
    title = "folds batch norm into the convolution or linear layer before it (inference)"
    safety = "tolerance"
    place = "model"
    serves = "inference"
    unseen = (
        "weights written through `.data` do not count, nor does a forward that joins its layers in another way than in "
        "the first call (by a flag of its own); a layer's output that it puts away itself is normed already"
    )
    by_hand = "torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)"

    def apply(self, seams: Seams) -> None:
        def first_call(module: Any, args: Any, kwargs: Any) -> None:
            import torch

            from gobrrr.remedies.mechanism.graph_later import insides

            if torch.is_grad_enabled():
                seams.declined(self.name, "gradients are recorded: infer under torch.inference_mode()")
                return
            if not all(map(counts, insides(module).tensors)):
                seams.declined(self.name, "weights made under inference_mode() do not say when they are changed")
                return
            parts = list(module.modules())
            try:
                pairs = apart(lambda: _proven(module, parts, args, kwargs))
            except TriedApart as error:
                seams.declined(self.name, f"its forward could not be followed ({error})")
                return
            if not pairs:
                seams.declined(self.name, "no norm is given a layer's output alone, with the same results")
                return
            _fold(parts, pairs, seams.replace)
            seams.applied(self.name, f"{len(pairs)} layers")

        def fold(module: Any) -> None:
            if module.training or not any(map(_is_norm, module.modules())):
                return
            if getattr(module, "_compiled_call_impl", None) or hasattr(module, "_orig_mod"):
                seams.declined(self.name, "the model is compiled, and torch.compile would trace what looks at its call")
                return
            seams.replace(module, "forward", replaced(module, _Once(module, first_call)))

        seams.at_model(fold)


class _Once:
    """Looks at a module's first call, and goes on with the forward that it has afterwards. No hook: by then torch has
    read which forward it calls."""

    def __init__(self, module: Any, look: Callable[[Any, Any, Any], None]) -> None:
        self._module, self._look, self._waits = module, look, True

    def __call__(self, of: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if not self._waits or of is not self._module or torch.compiler.is_compiling():
            return forward(*args, **kwargs)
        self._waits = False
        self._look(of, args, kwargs)
        return of.forward(*args, **kwargs)


def _proven(module: Any, parts: list[Any], args: Any, kwargs: Any) -> list[Pair]:
    """Positions of layers and of their norms, if the model gives the same with all of them folded; else none."""
    numbers = {id(part): number for number, part in enumerate(parts)}
    pairs = sorted({(numbers[id(of)], numbers[id(layer)], numbers[id(norm)]) for of, layer, norm in _pairs(module)})
    used = Counter(number for _, *pair in pairs for number in pair)
    pairs = [pair for pair in pairs if used[pair[1]] == used[pair[2]] == 1]  # two forwards join them otherwise
    if not pairs:
        return []
    before = module.forward(*args, **kwargs)
    _fold(parts, pairs, setattr)
    return pairs if _alike(before, module.forward(*args, **kwargs)) else []


def _fold(parts: list[Any], pairs: list[Pair], replace: Any) -> None:
    from gobrrr.remedies.layers.folded import Folded, Followed

    followed = {of: Followed(parts[of]) for of, *_ in pairs}
    for each in followed.values():
        each.install(replace)
    for of, layer, norm in pairs:
        Folded(followed[of], parts[layer], parts[norm]).install(replace)


def _alike(before: Any, after: Any) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    old, new = ([leaf for leaf in tree_leaves(each) if isinstance(leaf, torch.Tensor)] for each in (before, after))
    if not old or len(old) != len(new):
        return False
    return all(a.shape == b.shape and _error(a, b) <= _tolerance(a) for a, b in zip(old, new, strict=True))


def _error(a: Any, b: Any) -> float:
    a, b = a.double(), b.double()
    return float((a - b).norm() / a.norm().clamp_min(1e-30))


def _tolerance(a: Any) -> float:
    return CLOSE_HALF if a.is_floating_point() and a.element_size() < 4 else CLOSE


def _pairs(module: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Modules whose forward was followed, with the layers and the norms that alone are given what they make."""
    ways = [_joined(module, way) for way in ({}, _defaults(module))]
    if ways[0] is None:
        for child in module.children():
            yield from _pairs(child)
        return
    yield from ((module, *pair) for pair in ways[0] if ways[1] is None or pair in ways[1])


def _defaults(module: Any) -> dict[str, Any]:
    """Return the default of each argument that a call may leave out: `if mask is None` branches on it."""
    found = inspect.signature(module.forward).parameters.values()
    return {one.name: one.default for one in found if one.default is not inspect.Parameter.empty}


def _joined(module: Any, defaults: dict[str, Any]) -> list[tuple[Any, Any]] | None:
    """Return the (layer, norm) pairs to fold on one way through the forward; None where torch.fx cannot follow it."""
    from torch import fx

    from gobrrr.remedies.layers.folded import Folded, Followed

    try:
        graph = fx.Tracer().trace(module, concrete_args=defaults or None)
    except Exception:
        return None
    parts = dict(module.named_modules(remove_duplicate=False))
    calls = [node for node in graph.nodes if node.op == "call_module"]
    times = Counter(id(parts[node.target]) for node in calls)
    read = {node.target.rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    found, followed = [], Followed(module)
    for node in calls:
        before = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        layer, norm = parts[before.target], parts[node.target]
        once = times[id(layer)] == times[id(norm)] == 1 and not {before.target, node.target} & read
        if once and _is_own(layer, norm) and Folded(followed, layer, norm).fits():
            found.append((layer, norm))
    return found


def _is_norm(module: Any) -> bool:
    from torch import nn

    return isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))


def _is_own(*parts: Any) -> bool:
    return not any("forward" in vars(part) for part in parts)
