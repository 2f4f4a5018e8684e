"""Batch norm of a model that only infers goes into the weights before it."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class FoldBatchNorm(Remedy):
    """Conv2d or Linear followed by its BatchNorm in an nn.Sequential of a model in eval() mode become one layer."""

    name = "fold_batch_norm"
    title = "folds batch norm into the convolution or linear layer before it (inference)"
    safety = "tolerance"
    place = "model"
    codes = ("BRR201",)
    serves = "inference"
    by_hand = "torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)"

    def apply(self, seams: Seams) -> None:
        def fold(module: Any) -> None:
            if module.training:
                return
            num = sum(_folded(part, seams) for part in module.modules())
            if num:
                seams.applied(self.name, f"{num} layers")

        seams.at_model(fold)


def _folded(part: Any, seams: Seams) -> int:
    """Fold neighbours within one Sequential, whose order is known; gives how many."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

    if not isinstance(part, nn.Sequential):
        return 0
    num = 0
    for (first, layer), (second, norm) in itertools.pairwise(list(part._modules.items())):
        if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            fused: Any = fuse_conv_bn_eval(layer, norm)
        elif isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
            fused = fuse_linear_bn_eval(layer, norm)
        else:
            continue
        part._modules[first], part._modules[second] = fused, nn.Identity()
        seams.undo(partial(part._modules.update, {first: layer, second: norm}))
        num += 1
    return num


REMEDY = FoldBatchNorm()
