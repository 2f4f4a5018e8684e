"""Does an edit of the source compute the same, however it names its parts and groups its calls?

A remedy leaves the program as it is written, so every call must be the baseline's own. An edit may batch a loop, rename
a class or move work between a data set and a model: what counts then is what a step makes of the weights. Where losses,
gradients and updates match in steps that begin from the baseline's state, other calls are a way of writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from gobrrr.guard.model.observation import Call, Data, Observation, Step
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import GREEN, VERDICTS, Check, Guarded
from gobrrr.guard.verdicts import tokens

Parts = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
ACCEPTED_BY = {
    "data": ("samples", "order"), "epochs": ("samples", "order"), "inputs": ("samples",), "trajectory": ("samples",),
    "random draws": ("random", "order", "samples"), "files": ("output",), "printed": ("output",),
    "hyperparameters": ("hyperparameters",), "evaluation": ("evaluation",), "copies": ("evaluation",),
}  # fmt: skip
"""Words of --accept by the check whose change each of them allows."""
TIMED_ACCEPTED_BY = {
    "samples": ("samples",), "data": ("samples", "order", "random"), "order": ("order", "samples", "random"),
    "evaluation": ("evaluation",), "output": ("output",), "files": ("output",), "time": ("time",), "end": ("samples",),
    "weights": ("samples", "order", "random", "precision", "hyperparameters"), "random": ("random",),
    "updates": ("samples",), "outputs": ("precision",),
}  # fmt: skip
"""The same by the kind of a check of timed runs."""
WRITING = ("data", "mode", "inputs", "random draws")
"""Checks that say how models are called: excused where the steps that they lead to are the same."""
CAUSES = ("data", "epochs", "evaluation", "hyperparameters", "mode", "parameters", "steps")
"""Checks that say why the numbers are others: what follows from that is not told."""
NUMBERS = ("loss", "gradients", "updates", "buffers", "optimizer states")
"""Checks of what a training step computes."""


def aligned(baseline: Observation, candidate: Observation) -> Observation:
    """The candidate with the baseline's names for models and parameters where each can stand for one alone: classes of
    another name in the order of their first calls, parameters left over in the order and with the shapes of theirs."""
    old, fresh = _labels(baseline), _labels(candidate)
    models = dict(zip((n for n in fresh if n not in old), (n for n in old if n not in fresh), strict=False))
    renamed = _renamed(candidate, lambda name: _with_model(name, models))
    lost = [name for name in baseline.trainable if name not in renamed.trainable]
    new = [name for name in renamed.trainable if name not in baseline.trainable]
    ours, theirs = _shapes(baseline), _shapes(renamed)
    if not new or [ours.get(name) for name in lost] != [theirs.get(name) for name in new]:
        return renamed
    names = dict(zip(new, lost, strict=True))
    return _renamed(renamed, lambda name: _with_parameter(name, names))


def parts(baseline: Observation, candidate: Observation, renames: Mapping[str, tuple[str, ...]]) -> Parts:
    """Parameters of the candidate that hold several of the baseline's along their first dimension, without the labels
    of their models: as the user says it (`renames`: the end of a name -> the ends of the names that it holds), else
    those left over whose rows add up to its own, in their order."""
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    ours, theirs = _shapes(baseline), _shapes(aligned(baseline, candidate))
    lost = [name for name in ours if name not in theirs]
    for new in (name for name in theirs if name not in ours):
        label, _, own = new.partition(".")
        wanted = [f"{own.removesuffix(end)}{old}" for end, olds in renames.items()
                  if f".{own}".endswith(f".{end}") for old in olds]  # fmt: skip
        held = [f"{label}.{old}" for old in wanted] or _adding_up(theirs[new], lost, ours)
        if held and all(name in ours for name in held):
            found[own] = tuple((name.partition(".")[2], ours[name][0]) for name in held)
            lost = [name for name in lost if name not in held]
    return tuple(found.items())


def _adding_up(shape: tuple[int, ...], names: list[str], shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Neighbours among the names, two at least, of the same width as the shape and together of as many rows."""
    kind = [name for name in names if shapes[name] and shapes[name][1:] == shape[1:]]
    for first in range(len(kind)):
        for last in range(first + 2, len(kind) + 1):
            if shape and sum(shapes[name][0] for name in kind[first:last]) == shape[0]:
                return kind[first:last]
    return []


def regrouped(baseline: Observation, *others: Observation | None) -> list[Observation | None]:
    """Runs of a program that only infers, in which samples are batched otherwise: sample by sample, one step each, of
    each model as many as the shortest run has; the runs as they are where another has fewer, where outputs are no rows
    of samples, or too large to be kept whole."""
    runs = [baseline, *others]
    sizes = {tuple(len(call.data.rows) for call in _calls(run)) for run in runs if run is not None}
    split = [_by_sample(run) if run is not None else None for run in runs]
    known = [each for each in split if each is not None]
    if len(sizes) == 1 or any(each is None and run is not None for each, run in zip(split, runs, strict=True)):
        return runs
    least = min(known, key=lambda each: sum(map(len, each.values())))
    nums = {model: len(steps) for model, steps in least.items()}
    if any(each.keys() != nums.keys() or any(len(each[model]) < num for model, num in nums.items()) for each in known):
        return runs
    if any(_share(each, model) < _share(known[0], model) / 2 for each in known for model in nums):
        return runs  # a model is called less often beside the others
    steps = [tuple(step for model, num in nums.items() for step in each[model][:num]) if each else () for each in split]
    return [run and replace(run, steps=kept, complete=False) for run, kept in zip(runs, steps, strict=True)]


def rows_per_call(baseline: Observation, candidate: Observation) -> tuple[float, float] | None:
    """Return the samples in a call of each, in a program that only infers and is written to batch otherwise; None where
    calls have as many samples as before, and no tokens are generated."""
    if baseline.training or candidate.training:
        return None
    if tokens.generates(baseline):  # told one by one, and timed by tokens, of which a round may give several
        return 1.0, 1.0
    each = [[len(call.data.rows) for call in _calls(run)] for run in (baseline, candidate)]
    if set(each[0]) == set(each[1]) or not all(each) or not all(map(sum, each)):
        return None
    first, second = (sum(sizes) / len(sizes) for sizes in each)
    return first, second


def _share(run: Mapping[str, list[Step]], model: str) -> float:
    return len(run[model]) / sum(map(len, run.values()))


def _by_sample(run: Observation) -> dict[str, list[Step]] | None:
    found: dict[str, list[Step]] = {}
    for call in _calls(run):
        rows = call.data.rows
        whole = all(len(seen.values()) == seen.numel and seen.shape[:1] == (len(rows),) for seen in call.outputs or ())
        if not rows or not call.outputs or not whole:
            return None
        for number, row in enumerate(rows):
            outputs = tuple(_row(seen, number) for seen in call.outputs)
            one = Call(call.model, call.training, Data(row, (row,)), outputs)
            found.setdefault(call.model, []).append(Step(calls=(one,)))
    return found


def _row(seen: Seen, number: int) -> Seen:
    values = seen.values().reshape(seen.shape[0], -1)[number]
    finite, data = np.isfinite(values), values.tobytes()
    norm, digest = float(np.linalg.norm(values[finite])), hashlib.sha256(data).hexdigest()
    return Seen((1, *seen.shape[1:]), seen.dtype, digest, norm, int((~finite).sum()), data)


def of_training(run: Observation) -> Observation:
    """The run without calls in training mode, which losses, gradients and updates answer for."""
    return _each(run, lambda step: replace(step, calls=tuple(call for call in step.calls if not call.training)))


def of_common_buffers(baseline: Observation, run: Observation) -> Observation:
    """The run with those buffers alone that the baseline has too, where a step changes them after the first, which
    shows all: constants, and what only an edited program keeps, show in the numbers that come of them."""
    known = {name for step in baseline.steps for name in step.buffers or ()}
    moved = known & {name for step in run.steps[1:] for name in step.buffers or ()}

    def common(step: Step) -> Step:
        kept = {name: seen for name, seen in (step.buffers or {}).items() if name in moved}
        return replace(step, buffers=None if step.buffers is None else kept)

    return _each(run, common)


def _each(run: Observation, change: Callable[[Step], Step]) -> Observation:
    return replace(run, steps=tuple(map(change, run.steps)))


def settled(
    found: Iterable[Check], baseline: Observation, candidate: Observation, accepted: Collection[str]
) -> Iterator[Check]:
    """The checks of an edit: what is a way of writing is excused, what the user accepts is said to be."""
    checks = [each for each in found if each.name != "hyperparameters"]
    checks += [*_evaluation(baseline, candidate), _groups(baseline, candidate)]
    if any(len(b.calls) != len(c.calls) for b, c in zip(baseline.steps, candidate.steps, strict=False)):
        checks = [each for each in checks if each.name != "data"] + [_amounts(baseline, candidate)]
    if _updates(baseline) == _updates(candidate):  # what an evaluation behind the last update makes is no step here
        checks = [each for each in checks if each.name != "steps"]
    alike = _computes_alike(checks, baseline)
    causes = [] if alike else [each for each in checks if each.name in CAUSES and each.verdict not in GREEN
                               and not _is_accepted(each, accepted)]  # fmt: skip
    answers = [each.verdict for each in checks if each.name == "outputs"]
    answered = not baseline.training and bool(answers) and all(verdict in GREEN for verdict in answers)
    for each in checks:
        if each.verdict in GREEN:
            yield each
        elif answered and each.name in ("parameters", "data"):  # of an inference nothing else counts: padding may go
            yield Check(each.name, "equivalent", f"{each.reason}; outputs match")
        elif causes and each.name in (*NUMBERS, "outputs", "trajectory", "copies"):
            continue
        elif alike and each.name in WRITING:
            yield Check(each.name, "equivalent", f"{each.reason}; losses, gradients and updates match")
        elif alike and each.name == "outputs" and not _same_calls(baseline, candidate):
            yield Check(each.name, "bounded", "evaluation calls its models otherwise: their outputs were not compared")
        elif alike and each.name == "files" and "are written in step" in each.reason:
            yield Check(each.name, "bounded", f"{each.reason}: timed runs say how much they hold")
        elif not baseline.training and each.name in ("mode", "data") and _same_inputs(baseline, candidate):
            yield Check(each.name, "unverified", f"{each.reason}: outputs cannot be told sample by sample")
        elif _is_accepted(each, accepted):
            yield Check(each.name, "bounded", f"accepted: {each.reason}")
        elif each.name == "copies":  # an average that is read, or a copy that nobody reads: it cannot be told
            yield Check(each.name, "unverified", f"{each.reason}: --accept evaluation, if nobody reads it")
        elif each.name == "parameters":
            said = f"{each.reason}: --rename says which parameter holds which"
            yield Check(each.name, "unverified", said, each.module)
        else:
            yield each


def with_timed(guarded: Guarded, timed: Iterable[Check], accepted: Collection[str]) -> Guarded:
    """The guard's verdict with what the accounts of timed runs say (verdicts/timed.py)."""
    told = [Check(each.name, "bounded", f"accepted: {each.reason}", kind=each.kind)
            if each.verdict not in GREEN and set(TIMED_ACCEPTED_BY.get(each.kind, ())) & set(accepted) else each
            for each in timed]  # fmt: skip
    verdict = max([guarded.verdict, *(each.verdict for each in told)], key=VERDICTS.index)
    telling = [f"{each.name}: {each.reason}" for each in told if each.reason and each.verdict == verdict]
    kept = guarded.reasons if guarded.verdict == verdict or verdict in GREEN else ()
    return replace(guarded, verdict=verdict, reasons=(*kept, *telling))


def _is_accepted(check: Check, accepted: Collection[str]) -> bool:
    """Whether a word of the user's allows it; fewer samples are no other order."""
    words = ACCEPTED_BY.get(check.name, ())
    return bool(set(words[:1] if check.verdict == "wrong" else words) & set(accepted))


def _computes_alike(checks: Iterable[Check], baseline: Observation) -> bool:
    """Whether the steps of a training are the same by all that was looked at."""
    told = [each for each in checks if each.name in NUMBERS]
    # A loss is compared by closeness alone, which is not asked where the order may change.
    compared = {"loss", "updates"} <= {each.name for each in told}
    return baseline.training and compared and all(each.verdict in GREEN for each in told)


def _amounts(baseline: Observation, candidate: Observation) -> Check:
    """The data of runs whose calls are grouped otherwise: as many elements in each step."""
    for number, (b, c) in enumerate(zip(baseline.steps, candidate.steps, strict=False)):
        had, given = (sum(call.data.num_elements for call in step.calls if call.training) for step in (b, c))
        if had != given:
            reason = f"models are given {given:,} elements in step {number + 1}, in the baseline {had:,}"
            return Check("data", "wrong", reason)
    return Check("data", "equivalent")


def _updates(run: Observation) -> int:
    return sum(step.updates != {} for step in run.steps) + run.passed


def _evaluation(baseline: Observation, candidate: Observation) -> Iterator[Check]:
    """As many samples as in the baseline go through models in evaluation mode, by content where it is known."""
    num = None if baseline.complete and candidate.complete else min(len(baseline.steps), len(candidate.steps))
    ours, theirs = (
        sorted(row for call in _calls(run, num, training=False) for row in call.data.rows)
        for run in (baseline, candidate)
    )
    if baseline.training and len(ours) > len(theirs):
        said = f"{len(theirs):,} of {len(ours):,} samples are given to models in eval mode"
        yield Check("evaluation", "changed", said)
    elif baseline.training and len(ours) == len(theirs) and ours != theirs:
        yield Check("evaluation", "changed", "other samples are given to models in eval mode")


def _same_inputs(baseline: Observation, candidate: Observation) -> bool:
    """Whether an inference is given samples of the baseline alone, in other calls."""
    ours, theirs = ({row for call in _calls(run) for row in call.data.rows} for run in (baseline, candidate))
    sizes = [[(call.model, len(call.data.rows)) for call in _calls(run)] for run in (baseline, candidate)]
    return sizes[0] != sizes[1] and bool(ours & theirs) and len(ours & theirs) >= min(len(ours), len(theirs))


def _same_calls(baseline: Observation, candidate: Observation) -> bool:
    num = min(len(baseline.steps), len(candidate.steps))
    ours, theirs = (
        [(call.model, len(call.data.rows), len(call.outputs or ())) for call in _calls(run, num, training=False)]
        for run in (baseline, candidate)
    )
    return ours == theirs


def _calls(run: Observation, num: int | None = None, training: bool | None = None) -> Iterator[Call]:
    for step in run.steps[:num]:
        yield from (call for call in step.calls if training in (None, call.training))


def _groups(baseline: Observation, candidate: Observation) -> Check:
    """The same settings for every step, whatever the optimizer's class is called and however parameters are grouped."""
    for number, (b, c) in enumerate(zip(baseline.steps, candidate.steps, strict=False)):
        then, now = _settings(b), _settings(c)
        for key in sorted(then.keys() & now.keys()):
            if then[key] != now[key]:
                ours, theirs = (", ".join(sorted(side[key])) for side in (then, now))
                reason = f"setting {key} is {theirs} in step {number + 1}, {ours} in the baseline"
                return Check("hyperparameters", "wrong", reason)
    return Check("hyperparameters", "exact")


def _settings(step: Step) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for group in step.hyperparameters:
        for key, value in group.items():
            if key != "optimizer":
                found.setdefault(key, set()).add(value)
    return found


# names


def _labels(run: Observation) -> list[str]:
    return list(dict.fromkeys(call.model for step in run.steps for call in step.calls))


def _shapes(run: Observation) -> dict[str, tuple[int, ...]]:
    """By parameter; the first step is looked at whole."""
    return {name: seen.shape for step in run.steps[:1] for name, seen in (step.updates or {}).items()}


def _with_model(name: str, models: Mapping[str, str]) -> str:
    """A parameter's name, or that of a state of it, with the baseline's label of its model."""
    for new, old in models.items():
        for before in ("", " for "):
            begin, found, rest = name.partition(f"{before}{new}.")
            if found and (before or not begin):
                return f"{begin}{before}{old}.{rest}"
    return name


def _with_parameter(name: str, names: Mapping[str, str]) -> str:
    head, found, rest = name.partition(" for ")
    if not found:
        return names.get(name, name)
    parameter, colon, key = rest.rpartition(": ")
    return f"{head}{found}{names.get(parameter, parameter)}{colon}{key}"


def _renamed(run: Observation, of: Callable[[str], str]) -> Observation:
    def all_of(named: Mapping[str, Seen | None] | None) -> dict[str, Seen | None] | None:
        return None if named is None else {of(name): seen for name, seen in named.items()}

    def model(label: str) -> str:
        return of(f"{label}.").removesuffix(".")

    def step_of(step: Step) -> Step:
        calls = tuple(replace(call, model=model(call.model)) for call in step.calls)
        named = {kind: all_of(getattr(step, kind)) for kind in ("gradients", "updates", "buffers", "states")}
        return replace(step, calls=calls, **named)

    return _each(replace(run, trainable={of(name): value for name, value in run.trainable.items()}), step_of)
