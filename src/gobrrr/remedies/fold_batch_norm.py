"""Batch norm of a model that only infers goes into the weights before it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.apart import TriedApart, apart
from gobrrr.remedies.changed import counts
from gobrrr.remedies.folded import Folded
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

CLOSE, CLOSE_HALF = 1e-3, 5e-2
"""Relative errors of an output (Frobenius norm) up to which two are alike, in float32 and below: folds come to 1e-6 and
1e-2, one in the wrong place to 0.2 and more. The guard judges the program by what it knows of its own rounding."""
Pair = tuple[int, int]


class FoldBatchNorm(Remedy):
    """A convolution or Linear whose output its batch norm alone is given computes what both do, in a model in eval()
    mode. Who is given what is read off the forward by torch.fx: where it cannot follow one (that depends on values),
    off those of its children. Then the model's first call is made twice, as it is and folded, and nothing is folded
    where the results differ. Both in a copy of the process."""

    name = "fold_batch_norm"
    title = "folds batch norm into the convolution or linear layer before it (inference)"
    safety = "tolerance"
    place = "model"
    codes = ("BRR201", "BRR210")
    serves = "inference"
    by_hand = "torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)"

    def apply(self, seams: Seams) -> None:
        def first_call(module: Any, args: Any, kwargs: Any) -> None:
            import torch

            from gobrrr.remedies.graph_later import insides

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
            for layer, norm in pairs:
                Folded(parts[layer], parts[norm]).install(seams.replace)
            seams.applied(self.name, f"{len(pairs)} layers")

        def fold(module: Any) -> None:
            if module.training or not any(map(_is_norm, module.modules())):
                return

            def once(module: Any, args: Any, kwargs: Any) -> None:
                handle.remove()
                first_call(module, args, kwargs)

            handle = module.register_forward_pre_hook(once, with_kwargs=True)
            seams.undo(handle.remove)

        seams.at_model(fold)


def _proven(module: Any, parts: list[Any], args: Any, kwargs: Any) -> list[Pair]:
    """Positions of layers and of their norms, if the model gives the same with all of them folded; else none."""
    numbers = {id(part): number for number, part in enumerate(parts)}
    pairs = sorted({(numbers[id(layer)], numbers[id(norm)]) for layer, norm in _pairs(module)})
    used = Counter(number for pair in pairs for number in pair)
    pairs = [pair for pair in pairs if used[pair[0]] == used[pair[1]] == 1]  # two forwards join them otherwise
    if not pairs:
        return []
    before = module(*args, **kwargs)
    for layer, norm in pairs:
        Folded(parts[layer], parts[norm]).install(setattr)
    return pairs if _alike(before, module(*args, **kwargs)) else []


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


def _pairs(module: Any) -> Iterator[tuple[Any, Any]]:
    """Layers and the norms that alone are given what they make, each of them once in the forward that was followed."""
    ways = [_joined(module, way) for way in ({}, _defaults(module))]
    if ways[0] is None:
        for child in module.children():
            yield from _pairs(child)
        return
    yield from (pair for pair in ways[0] if ways[1] is None or pair in ways[1])


def _defaults(module: Any) -> dict[str, Any]:
    """What a call without them means: `if mask is None` goes another way then."""
    found = inspect.signature(module.forward).parameters.values()
    return {one.name: one.default for one in found if one.default is not inspect.Parameter.empty}


def _joined(module: Any, defaults: dict[str, Any]) -> list[tuple[Any, Any]] | None:
    """Of one way through the forward; None where torch.fx cannot follow it."""
    from torch import fx

    try:
        graph = fx.Tracer().trace(module, concrete_args=defaults or None)
    except Exception:
        return None
    parts = dict(module.named_modules(remove_duplicate=False))
    calls = [node for node in graph.nodes if node.op == "call_module"]
    times = Counter(id(parts[node.target]) for node in calls)
    read = {node.target.rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    found = []
    for node in calls:
        before = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        layer, norm = parts[before.target], parts[node.target]
        once = times[id(layer)] == times[id(norm)] == 1 and not {before.target, node.target} & read
        if once and _fits(layer, norm):
            found.append((layer, norm))
    return found


def _is_norm(module: Any) -> bool:
    from torch import nn

    return isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))


def _fits(layer: Any, norm: Any) -> bool:
    """Whether the two are one affine map: of torch's own kind, with statistics, and with nobody listening between."""
    from torch import nn
    from torch.nn.utils.parametrize import is_parametrized

    kinds = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, nn.Linear: nn.BatchNorm1d}
    if type(norm) is not kinds.get(type(layer)) or norm.training or norm.running_mean is None:
        return False
    own = any("forward" in vars(each) or each._forward_hooks or each._forward_pre_hooks for each in (layer, norm))
    return not own and not is_parametrized(layer)


REMEDY = FoldBatchNorm()
