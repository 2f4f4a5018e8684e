"""Which ops of two recordings are the same work, where each backend has an op of its own for it?

aten::_convolution calls mkldnn_convolution here and cudnn_convolution there. What runs on one side alone belongs to the
nearest op around it that runs on both, with the same shapes, where the other side has such ops in it too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gobrrr.ledger.ops.op_times import Key, OpTime

Ops = Mapping[Key, OpTime]


class Pair(NamedTuple):
    """One op on both sides, None where it did not run; `by` are the backends' own ops in it, for each side."""

    key: Key
    a: OpTime | None
    b: OpTime | None
    by: tuple[str, str] | None = None


def counterparts(a: Ops, b: Ops) -> list[Pair]:
    """Every op of either side once, as itself or in the op around it."""
    inside = [_inside(a, b), _inside(b, a)]
    joined = [key for key in inside[0] if key in inside[1]]
    gone = {key for keys in inside for around in joined for key in (around, *keys[around])}
    pairs = [Pair(key, a.get(key), b.get(key)) for key in dict.fromkeys((*a, *b)) if key not in gone]
    for around in joined:
        of_a, of_b = (_with(side, around, keys[around]) for side, keys in zip((a, b), inside, strict=True))
        pairs.append(Pair(around, of_a, of_b, (_named(a, inside[0][around]), _named(b, inside[1][around]))))
    return pairs


def _inside(side: Ops, other: Ops) -> dict[Key, list[Key]]:
    """Ops of both sides with those in them that run on this side alone."""
    found: dict[Key, list[Key]] = defaultdict(list)
    known: dict[Key, Key | None] = {}
    for key in side:
        around = _around(key, side, other, known) if key not in other else None
        if around is not None:
            found[around].append(key)
    return dict(found)


def _around(key: Key, side: Ops, other: Ops, known: dict[Key, Key | None]) -> Key | None:
    """The nearest op around it that runs on both sides; every step up is taken once."""
    path: list[Key] = []
    at: Key | None = key
    while at is not None and at in side and at not in known and (at == key or at not in other):
        known[at] = None  # where ops are around each other, nothing is
        path.append(at)
        at = side[at].within
    found = known[at] if at in known else at if at in side and at in other else None
    for each in path:
        known[each] = found
    return found


def _with(side: Ops, around: Key, inner: Sequence[Key]) -> OpTime:
    """The op around, with the time of what only this side has in it."""
    own = side[around]
    return msgspec.structs.replace(
        own, host_ns=own.host_ns + sum(side[key].host_ns for key in inner),
        device_ns=own.device_ns + sum(side[key].device_ns for key in inner),
    )  # fmt: skip


def _named(side: Ops, inner: Sequence[Key]) -> str:
    """The one that takes most."""
    return max(inner, key=lambda key: (side[key].host_ns + side[key].device_ns, key))[0]
