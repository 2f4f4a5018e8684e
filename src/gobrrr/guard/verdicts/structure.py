"""Did the candidate do the same things: same data, parameters, gradients, buffers and hyperparameters, all finite?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from gobrrr.guard.model.observation import Call, Observation, Step
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import Check

FEWEST_SHOWN = 3  # names told, then a number; proposed: they fit in a line; readers would settle it
ROUNDING = 1e-5
"""Share of the root mean square of all tensors of a kind: a tensor below it may be rounding alone."""


def checks(
    baseline: Observation, candidate: Observation, order_may_change: bool = False, regroups: bool = False
) -> Iterator[Check]:
    """One check per question; those that find nothing wrong say exact. `regroups`: samples of like length come together
    by intent."""
    yield _first("steps", _other_length(baseline, candidate))
    yield _first("parameters", _other_parameters(baseline, candidate))
    yield _data(baseline, candidate, order_may_change, regroups)
    yield _first("inputs", _written_inputs(baseline, candidate))
    yield _first("mode", _other_modes(baseline, candidate))
    yield _first("hyperparameters", _other_hyperparameters(baseline, candidate))
    yield _first("gradients", _other_gradients(baseline, candidate))
    yield _first("buffers", _other_buffers(baseline, candidate))
    yield _first("updates", _no_movement(baseline, candidate))
    yield _first("finite", _infinite(baseline, candidate))


def same_data(baseline: Observation, candidate: Observation) -> bool:
    """Whether both runs were given the same, bit for bit, in the same order."""
    return all(_given(b) == _given(c) for b, c in zip(baseline.steps, candidate.steps, strict=False))


def _given(step: Step) -> list[str]:
    return [call.data.digest for call in step.calls]


_Found = Iterator[tuple[str, str]]
"""Reasons to call a run wrong, each with the module."""


def _first(name: str, found: _Found) -> Check:
    reason, module = next(found, ("", ""))
    return Check(name, "wrong" if reason else "exact", reason, module)


def _other_length(baseline: Observation, candidate: Observation) -> _Found:
    if baseline.training != candidate.training:
        yield "one of the two runs made no update", ""
    ours, theirs = (len(run.steps) + run.passed for run in (baseline, candidate))
    if candidate.complete and (ours > theirs or (baseline.complete and ours != theirs)):
        more = "" if baseline.complete else " or more"
        yield f"{theirs} steps to the end, the baseline made {ours}{more}", ""


def _other_parameters(baseline: Observation, candidate: Observation) -> _Found:
    before, after = baseline.trainable, candidate.trainable
    if lost := [n for n in before if n not in after]:
        yield f"{_some(lost)} gone", lost[0]
    if new := [n for n in after if n not in before]:
        yield f"{_some(new)} new", new[0]
    held = {n for step in baseline.steps for n in step.gradients or ()}
    # Gradients that no optimizer takes may as well not be made.
    unused = {n for n in before if baseline.training and before[n] and n not in held}
    if turned := [n for n in before if before[n] != after[n] and n not in unused]:
        yield f"requires_grad of {_some(turned)} changed", turned[0]


def _data(baseline: Observation, candidate: Observation, order_may_change: bool, regroups: bool) -> Check:
    name = "data"
    for number, (b, c) in enumerate(_pairs(baseline, candidate)):
        if len(b.calls) != len(c.calls):
            reason = f"{len(c.calls)} calls of models in step {number + 1}, the baseline made {len(b.calls)}"
            return Check(name, "wrong", reason)
        given, had = _amount(c.calls), _amount(b.calls)
        if given[0] != had[0] or (given != had and not order_may_change):  # other samples may have other lengths
            return Check(name, "wrong", _other_amount(number + 1, given, had))
    if same_data(baseline, candidate):
        return Check(name, "exact")
    repeats = _repeats(candidate) - _repeats(baseline)
    if repeats > 0 and not (regroups and _each_once(baseline, candidate)):
        return Check(name, "wrong", f"{repeats} samples came more often than in the baseline")
    reason = "other samples came, or the same ones with other random draws"
    if _samples(baseline) == _samples(candidate):
        reason = "models were given something else beside the same samples, in the same order"
    elif Counter(_samples(baseline)) == Counter(_samples(candidate)):
        reason = "the same samples came in another order"
    return Check(name, "bounded" if order_may_change else "changed", reason)


def _other_amount(step: int, given: tuple[int, int], had: tuple[int, int]) -> str:
    """Samples, and the elements of their tensors, in words."""
    if given[0] != had[0]:
        return f"step {step} was given {given[0]} samples, the baseline {had[0]}"
    return f"the {given[0]} samples of step {step} had {given[1]} elements in all, in the baseline {had[1]}"


def _amount(calls: tuple[Call, ...]) -> tuple[int, int]:
    return sum(len(call.data.rows) for call in calls), sum(call.data.num_elements for call in calls)


def _samples(observation: Observation) -> list[str]:
    return [row for step in observation.steps for call in step.calls for row in call.data.rows]


def _repeats(observation: Observation) -> int:
    found = _samples(observation)
    return len(found) - len(set(found))


def _each_once(baseline: Observation, candidate: Observation) -> bool:
    """Whether whole epochs of both have the same indices, each once, from as many workers: what looks the same then is
    in the data twice, and batches of like length bring it together. Other workers may repeat each other's draws. It is
    the sampler's word: what is done to its batches afterwards no epoch shows."""
    epochs = [*zip(baseline.epochs, candidate.epochs, strict=False)]
    same = all(b.indices and b.indices == c.indices and c.num == c.unique and b.workers == c.workers for b, c in epochs)
    return bool(epochs) and len(baseline.epochs) == len(candidate.epochs) and same


def _written_inputs(baseline: Observation, candidate: Observation) -> _Found:
    for b, c in _calls(baseline, candidate):
        if c.data.mutated and not b.data.mutated:
            yield f"{c.model} writes into what it was given", c.model


def _other_modes(baseline: Observation, candidate: Observation) -> _Found:
    for b, c in _calls(baseline, candidate):
        if b.model != c.model:
            yield f"{c.model} was called where the baseline called {b.model}", c.model
        if b.training != c.training:
            yield f"{c.model} is in {'train' if c.training else 'eval'}() mode, the baseline is not", c.model


def _other_hyperparameters(baseline: Observation, candidate: Observation) -> _Found:
    for number, (b, c) in enumerate(_pairs(baseline, candidate)):
        if len(b.hyperparameters) != len(c.hyperparameters):
            yield f"{len(c.hyperparameters)} parameter groups, the baseline has {len(b.hyperparameters)}", ""
        for then, now in zip(b.hyperparameters, c.hyperparameters, strict=True):
            for key in sorted(set(then) | set(now)):
                if then.get(key) != now.get(key):
                    yield f"{key} is {now.get(key)} in step {number + 1}, {then.get(key)} in the baseline", ""


def _other_gradients(baseline: Observation, candidate: Observation) -> _Found:
    for b, c in _pairs(baseline, candidate):
        then, now = b.gradients or {}, c.gradients or {}
        if b.gradients is None or c.gradients is None:
            continue
        if other := [n for n in then if (then[n] is None) != (now.get(n) is None)]:
            how = "have no gradient any more" if then[other[0]] is not None else "have a gradient now"
            yield f"{_some(other)} {how}", other[0]
        told = _more_than_rounding({n: g for n, g in then.items() if g is not None})
        if zero := [n for n in told if (s := now[n]) is not None and s.norm == 0 and not s.num_bad]:
            yield f"the gradient of {_some(zero)} is zero", zero[0]


def _other_buffers(baseline: Observation, candidate: Observation) -> _Found:
    for b, c in _pairs(baseline, candidate):
        if b.buffers is None or c.buffers is None:
            continue
        if stale := sorted(set(b.buffers) - set(c.buffers)):
            yield f"{_some(stale)} not updated", stale[0]
        if new := sorted(set(c.buffers) - set(b.buffers)):
            yield f"{_some(new)} updated, which the baseline leaves alone", new[0]


def _no_movement(baseline: Observation, candidate: Observation) -> _Found:
    for b, c in _pairs(baseline, candidate):
        told, now = _more_than_rounding(b.updates or {}), c.updates or {}
        if still := [n for n in told if n in now and now[n].norm == 0 and not now[n].num_bad]:
            yield f"{_some(still)} no longer move", still[0]


def _more_than_rounding(tensors: dict[str, Seen]) -> list[str]:
    """Return the tensors that are not next to nothing beside the others: the gradient of a bias before a batch norm is
    rounding, and may be zero by luck."""
    numel = sum(seen.numel for seen in tensors.values()) or 1
    usual = math.sqrt(sum(seen.norm**2 for seen in tensors.values()) / numel)
    return [n for n, seen in tensors.items() if seen.norm > ROUNDING * usual * math.sqrt(seen.numel)]


def _infinite(baseline: Observation, candidate: Observation) -> _Found:
    """Nothing may become NaN or infinite; a baseline that does so itself is not judged past that step (judging)."""
    for number, (b, c) in enumerate(_pairs(baseline, candidate)):
        if not all(map(math.isfinite, c.losses)):
            yield f"the loss is not finite in step {number + 1}", ""
        for kind in ("gradients", "updates", "buffers"):
            then, now = getattr(b, kind) or {}, getattr(c, kind) or {}
            for tensor, seen in now.items():
                usual = then.get(tensor)
                if seen is not None and seen.num_bad > (usual.num_bad if usual is not None else 0):
                    yield f"{kind} of {tensor} hold {seen.num_bad} NaN or infinite elements", tensor
        for x, y in zip(b.calls, c.calls, strict=False):
            for usual, seen in zip(x.outputs or (), y.outputs or (), strict=False):
                if seen.num_bad > usual.num_bad:
                    yield f"{y.model} gives {seen.num_bad} NaN or infinite elements", y.model


def _pairs(baseline: Observation, candidate: Observation) -> Iterator[tuple[Step, Step]]:
    return zip(baseline.steps, candidate.steps, strict=False)


def _calls(baseline: Observation, candidate: Observation) -> Iterator[tuple[Call, Call]]:
    for b, c in _pairs(baseline, candidate):
        yield from zip(b.calls, c.calls, strict=False)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - FEWEST_SHOWN} more" if len(names) > FEWEST_SHOWN else ""
    return ", ".join(names[:FEWEST_SHOWN]) + more
