"""Optimizer steps over lists of tensors. torch records a list's shapes only up to 30 tensors; over that the call alone
does not say enough, and `list_work` prices it from the number of elements, which the optimizer knows."""

from __future__ import annotations

import msgspec

from gobrrr.ledger.work.call import Call, table_name, work
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.registry import FORMULAS


class ListRule(msgspec.Struct, frozen=True):
    """An op over `lists` lists of tensors at most (`usual` where that is not recorded): FLOPs per element, and lists
    written. Every list that is given is read."""

    lists: int
    usual: int
    flops: float
    written: int


# Adam: parameter, gradient, two moments (a third with amsgrad); all but the gradient are written. FLOPs: two moments
# (3 + 4), their corrections (2), root, epsilon, division, update (2), and one for the weight decay of AdamW.
FUSED = {
    "_fused_adam": ListRule(5, 4, 14, 3),
    "_fused_adamw": ListRule(5, 4, 15, 3),
    "_fused_sgd": ListRule(3, 3, 5, 2),
    "_fused_adagrad": ListRule(3, 3, 7, 2),
}
_BINARY, _UNARY, _NORM = ListRule(2, 1, 1, 1), ListRule(1, 1, 1, 1), ListRule(1, 1, 2, 0)
FOREACH = {
    **dict.fromkeys("add sub mul div maximum minimum clamp_min clamp_max pow".split(), _BINARY),
    **dict.fromkeys("addcmul addcdiv".split(), ListRule(3, 3, 3, 1)),
    **{"lerp": ListRule(2, 2, 3, 1), "norm": _NORM, "powsum": _NORM, "max": ListRule(1, 1, 1, 0)},
    **{"zero": ListRule(0, 0, 0, 1), "copy": ListRule(1, 1, 0, 1)},
    **dict.fromkeys(
        """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
        round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc clone""".split(),
        _UNARY,
    ),
}


def _given(call: Call, rule: ListRule) -> int:
    """How many lists of tensors are not empty; an empty one is recorded like one that is too long."""
    return sum(isinstance(a, tuple) and i not in call.opaque for i, a in enumerate(call.args[: rule.lists]))


def _priced(call: Call) -> Work:
    rule = _rule(call.name)
    members = call.members(0)
    given = rule.lists and _given(call, rule)
    writes = given - 1 if call.name in FUSED else rule.written
    elements = sum(t.numel * t.itemsize for t in members)
    return work("optimizer", rule.flops * sum(t.numel for t in members), (given + writes) * elements)


def _rule(name: str) -> ListRule:
    return FUSED.get(name) or FOREACH[name.removeprefix("_foreach_")]


FORMULAS.update(dict.fromkeys([*FUSED, *(f"_foreach_{op}" for op in FOREACH)], _priced))


def list_work(name: str, num_elements: int, itemsize: int = 4, num_lists: int | None = None) -> Work | None:
    """Work of an op over lists whose shapes were not recorded, from the number of elements of one list.

    `name` is _fused_adamw_, _foreach_mul_ and the like (aten:: before it is fine), `itemsize` bytes per element,
    `num_lists` how many lists of tensors the call was given where that is known. None for other ops.
    """
    base = table_name(name)
    if FORMULAS.get(base) is not _priced:
        return None
    rule = _rule(base)
    reads = rule.usual if num_lists is None else min(num_lists, rule.lists)
    return work("optimizer", rule.flops * num_elements, (reads + rule.written) * num_elements * itemsize)
