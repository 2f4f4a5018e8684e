"""Batch norm of a model that only infers goes into the weights before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.apart import TriedApart, apart
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class FoldBatchNorm(Remedy):
    """A convolution or Linear whose output its batch norm alone is given becomes one layer with it, in a model in
    eval() mode. Who is given what is read off the forward by torch.fx, in a copy of the process: where it cannot follow
    a forward (one that depends on values), off those of its children."""

    name = "fold_batch_norm"
    title = "folds batch norm into the convolution or linear layer before it (inference)"
    safety = "tolerance"
    place = "model"
    codes = ("BRR201", "BRR210")
    serves = "inference"
    by_hand = "torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)"

    def apply(self, seams: Seams) -> None:
        def fold(module: Any) -> None:
            if module.training or not any(map(_is_norm, module.modules())):
                return
            try:
                pairs = apart(lambda: list(_pairs(module)))
            except TriedApart as error:
                seams.declined(self.name, f"its forward could not be followed ({error})")
                return
            for layer, norm in pairs:
                _fold(module, layer, norm, seams)
            if pairs:
                seams.applied(self.name, f"{len(pairs)} layers")

        seams.at_model(fold)


def _pairs(module: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names of a layer and of the norm that alone is given what it makes; each runs once in a forward."""
    from torch import fx

    try:
        graph = fx.Tracer().trace(module)
    except Exception:
        for name, child in module.named_children():
            yield from _pairs(child, f"{prefix}{name}.")
        return
    parts = dict(module.named_modules(remove_duplicate=False))
    calls = [node for node in graph.nodes if node.op == "call_module"]
    times = Counter(id(parts[node.target]) for node in calls)
    for node in calls:
        before = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        layer, norm = parts[before.target], parts[node.target]
        if times[id(layer)] == times[id(norm)] == 1 and _fits(layer, norm):
            yield f"{prefix}{before.target}", f"{prefix}{node.target}"


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
    hooked = any(each._forward_hooks or each._forward_pre_hooks for each in (layer, norm))
    width = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    return bool(width == norm.num_features) and not hooked and not is_parametrized(layer)


def _fold(module: Any, layer_name: str, norm_name: str, seams: Seams) -> None:
    """Put one layer in the place of two; the program's own objects stay as they are."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

    layer, norm = module.get_submodule(layer_name), module.get_submodule(norm_name)
    fused: Any = (fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval)(layer, norm)
    for name, old, new in ((layer_name, layer, fused), (norm_name, norm, nn.Identity())):
        parent, _, last = name.rpartition(".")
        holder = module.get_submodule(parent)
        holder._modules[last] = new
        seams.undo(partial(holder._modules.update, {last: old}))


REMEDY = FoldBatchNorm()
