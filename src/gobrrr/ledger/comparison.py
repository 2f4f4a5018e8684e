"""Two recordings of one program, side by side: is the difference more than noise, and which ops make it?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from gobrrr import units
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.ops.op_times import Key, OpTime
from gobrrr.ledger.steps.median_interval import median_interval

ROUNDS, CONFIDENCE = 2000, 0.95
FEWEST = 6
"""Steps of each side below which an interval says nothing (median_interval gives the whole range then)."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two. Times are ns per step; `busy_ns` is None where no accelerator was seen."""

    source: str
    step_ns: float
    num_steps: int
    averaged: bool = False
    """The mean of its steps, as of a trace, not their median."""
    profiled_ns: float = 0.0
    """Its step with the profiler, to which the times of ops add up."""
    p95_ns: float | None = None
    p99_ns: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    """Tokens per second of the median step; null where not known, as the percentiles."""
    step_cost: float | None = None
    """At a price per hour, where one was named."""
    device: str = ""
    busy_ns: float | None = None
    accounts: tuple[tuple[str, float], ...] = ()
    codes: tuple[str, ...] = ()
    verdict: str = ""
    unreliable: bool = False
    """So says its own verdict."""
    kind: str = ""
    """Kind of its steps: training, inference, loop."""
    num_params: int | None = None
    """Parameters of the largest model that it calls; None where none was seen."""


class OpRatio(msgspec.Struct, frozen=True, kw_only=True):
    """One op with these shapes on both sides; a side on which it did not run has None."""

    name: str
    shapes: str
    a: OpTime | None
    b: OpTime | None
    by: tuple[str, str] | None = None
    """The ops that do it on each side, where they are not the same: mkldnn_convolution and cudnn_convolution."""

    @property
    def delta(self) -> float:
        """ns per step that B takes more: kernels where both sides have any, else the host and one side's kernels."""
        return self._ns(self.b) - self._ns(self.a)

    @property
    def ratio(self) -> float | None:
        """How many times as long one call of A takes as one of B, in the same time."""
        if self.a is None or self.b is None or not self.a.calls or not self.b.calls:
            return None
        a, b = self._ns(self.a) / self.a.calls, self._ns(self.b) / self.b.calls
        return a / b if b else None

    @property
    def ns(self) -> tuple[float, float]:
        """ns per step of A and of B, as in `delta`."""
        return self._ns(self.a), self._ns(self.b)

    def _ns(self, side: OpTime | None) -> float:
        if side is None:
            return 0.0
        if all(each is None or each.device_ns > 0 for each in (self.a, self.b)):
            return side.device_ns
        return side.host_ns + side.device_ns


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`speedup` is A's step over B's: above 1, B is faster. `low` and `high` are its 95 % interval."""

    schema: str = "gobrrr.comparison/1"
    verdict: str
    speedup: float
    low: float
    high: float
    a: Side
    b: Side
    ops: tuple[OpRatio, ...] = ()
    """The largest differences first."""
    appeared: tuple[str, ...] = ()
    """Codes that only B has."""
    vanished: tuple[str, ...] = ()


def side(ledger: Ledger, source: str, codes: Sequence[str], verdict: str, unreliable: bool = False) -> Side:
    """One side of the comparison."""
    device = ledger.device
    params = [module.num_params for module in ledger.facts.modules if module.num_params]
    samples, tokens = ledger.samples_per_step, ledger.sequences.tokens_per_s if ledger.sequences else None
    return Side(
        p95_ns=ledger.step.p95_ns, p99_ns=ledger.step.p99_ns, tokens_per_s=tokens,
        samples_per_s=1e9 * samples / ledger.step.average_ns if samples and ledger.wall else None,
        source=source, step_ns=ledger.wall, profiled_ns=ledger.step.wall_ns, num_steps=ledger.step.plain_count,
        averaged=ledger.step.averaged, device=device.name if device else "",
        busy_ns=min(device.busy_ns, ledger.wall) if device else None,
        accounts=tuple((a.account, a.ns) for a in ledger.accounts),
        codes=tuple(codes), verdict=verdict, unreliable=unreliable, kind=ledger.step.kind,
        num_params=max(params, default=None),
    )  # fmt: skip


def compared(
    a: Side,
    b: Side,
    walls: tuple[Sequence[float], Sequence[float]],
    ops: tuple[Mapping[Key, OpTime], Mapping[Key, OpTime]],
) -> Comparison:
    """The comparison. `walls` are the plain steps of both, ns."""
    some = a.step_ns > 0 and b.step_ns > 0
    speedup = a.step_ns / b.step_ns if some else math.nan
    low, high = _interval(*walls, a.averaged, b.averaged) if some else (math.nan, math.nan)
    told = (_unlike(a, b) if some else "") or _verdict(speedup, low, high, min(len(w) for w in walls))
    return Comparison(
        verdict=told, speedup=speedup, low=low, high=high, a=a, b=b,
        ops=tuple(sorted(counterparts(*ops), key=lambda row: (-abs(row.delta), row.name, row.shapes))),
        appeared=tuple(c for c in b.codes if c not in a.codes), vanished=tuple(c for c in a.codes if c not in b.codes),
    )  # fmt: skip


def _interval(first: Sequence[float], second: Sequence[float], *averaged: bool) -> tuple[float, float]:
    """Interval of the ratio of the medians, or means: bootstrap over the steps of each; of few, whole ranges' ratio."""
    if min(len(first), len(second)) < FEWEST:
        if not len(first) or not len(second):
            return math.nan, math.nan
        (a, b), (c, d) = median_interval(first), median_interval(second)
        return a / d if d else 0.0, b / c if c else math.inf
    draw = np.random.default_rng(0)
    usual = [
        (np.mean if mean else np.median)(draw.choice(np.asarray(walls, float), (ROUNDS, len(walls))), axis=1)
        for walls, mean in zip((first, second), averaged, strict=True)
    ]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(usual[0] / usual[1], (tail, 100 - tail))
    return float(low), float(high)


def _unlike(a: Side, b: Side) -> str:
    """Why a ratio of their steps would say nothing; empty where it does not."""
    if a.kind != b.kind:
        return f"Not comparable: a step of A is one of {a.kind}, of B one of {b.kind}."
    if a.num_params and b.num_params and a.num_params != b.num_params:
        return f"Not comparable: the model of A has {a.num_params:,} parameters, that of B {b.num_params:,}."
    doubtful = [name for name, each in (("A", a), ("B", b)) if each.unreliable]
    if doubtful:
        return f"Not comparable: the steps of {' and '.join(doubtful)} are unreliable, as said below."
    return ""


def _verdict(speedup: float, low: float, high: float, steps: int) -> str:
    if not math.isfinite(speedup):
        return f"A or B has no steps to compare: record at least {FEWEST} of each."
    sure = low > 1 or high < 1
    fast, slow, ends = ("B", "A", (low, high)) if speedup > 1 else ("A", "B", (1 / high, 1 / low if low else math.inf))
    times = max(speedup, 1 / speedup)
    interval = f"(95 % interval {ends[0]:.2f} to {ends[1]:.2f}, {steps} steps or more of each)"
    if steps < FEWEST:
        few = f"from {units.several('step', steps)} only: too few, {FEWEST} are needed"
        return f"{slow} takes {times:.2f} times as long per step as {fast}, but {few}."
    if not sure:
        return f"No difference beyond noise: {slow} takes {times:.2f} times as long per step as {fast} {interval}."
    return f"{fast} is {times:.2f} times as fast as {slow} {interval}."


# Which ops of two recordings are the same work, where each backend has an op of its own for it? aten::_convolution
# calls mkldnn_convolution here and cudnn_convolution there. What runs on one side alone belongs to the nearest op
# around it that runs on both, with the same shapes, where the other side has such ops in it too.

Ops = Mapping[Key, OpTime]


def counterparts(a: Ops, b: Ops) -> list[OpRatio]:
    """Every op of either side once, as itself or in the op around it."""
    inside = [_inside(a, b), _inside(b, a)]
    joined = [key for key in inside[0] if key in inside[1]]
    gone = {key for keys in inside for around in joined for key in (around, *keys[around])}
    alone = (key for key in dict.fromkeys((*a, *b)) if key not in gone)
    rows = [OpRatio(name=key[0], shapes=key[1], a=a.get(key), b=b.get(key)) for key in alone]
    for around in joined:
        of_a, of_b = (_with(side, around, keys[around]) for side, keys in zip((a, b), inside, strict=True))
        by = _named(a, inside[0][around]), _named(b, inside[1][around])
        rows.append(OpRatio(name=around[0], shapes=around[1], a=of_a, b=of_b, by=by))
    return rows


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
