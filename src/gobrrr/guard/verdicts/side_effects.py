"""Check effects that no model, gradient or update shows: random draws, copies of the weights, files, printed lines,
whole epochs.

What two runs of the baseline itself do not agree on is not asked of a candidate.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gobrrr.guard.model.observation import Epoch, Observation
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import Check

DEVIATIONS = 5.0
"""Standard errors by which the means of what models are given may differ where their order may."""
TOLERANCE = 0.02
"""And so much of their spread in any case."""
MOVES_APART = 0.05
"""Relative difference between the movements of two copies that rounding explains many times over."""
LESS = 0.95
"""Share of the baseline's elements per call: below it padding has gone. Random batches of 30 steps differ by less."""
CUT = 2
"""Lines of one kind from which one more or less is where the run was cut off."""
LINES = 2
"""Lines of one kind, the last ones, whose numbers are compared; each with the one before it."""
EQUAL, LOWERED = 1e-3, 0.05
"""Relative difference of a printed number that rounding explains, and a lower precision."""


def checks(
    baseline: Observation, candidate: Observation, again: Observation | None, order_may_change: bool, precision: str
) -> Iterator[Check]:
    """One check per side door."""
    known = baseline if again is None or again is candidate else again
    yield _random(baseline, candidate, known, order_may_change)
    yield _copies(baseline, candidate, known, how_far=not (order_may_change or precision))  # the data are the same
    yield _files(baseline, candidate, known)
    yield _printed(baseline, candidate, known, order_may_change, precision)
    yield _epochs(baseline, candidate, known, order_may_change)
    if order_may_change:
        yield _moments(baseline, candidate)


def _random(baseline: Observation, candidate: Observation, again: Observation, order_may_change: bool) -> Check:
    """Each step leaves the random streams where the baseline's leaves them: no number is drawn more, none fewer."""
    verdict = "bounded" if order_may_change else "changed"
    for number, (b, c, a) in enumerate(zip(baseline.steps, candidate.steps, again.steps, strict=False)):
        if b.random != c.random and b.random == a.random:
            return Check("random draws", verdict, f"other random numbers are drawn from step {number + 1} on")
    return Check("random draws", "exact")


def _copies(baseline: Observation, candidate: Observation, again: Observation, how_far: bool) -> Check:
    """Copies of the weights that move in the baseline (an EMA) move here too, and as far if that is asked."""
    last = None
    for number, (b, c, a) in enumerate(zip(baseline.steps, candidate.steps, again.steps, strict=False)):
        if b.copies is None or c.copies is None or a.copies is None:
            continue
        now = b.copies, c.copies, a.copies
        last = last or now
        for shape in b.copies:
            ours, theirs, same = ((x.get(shape, ()), y.get(shape, ())) for x, y in zip(last, now, strict=True))
            if reason := _stopped(ours, theirs, same, how_far):
                return Check("copies", "wrong", f"{reason} (shape {shape}) by step {number + 1}")
        last = now
    return Check("copies", "exact")


_Pair = tuple[tuple[Seen, ...], tuple[Seen, ...]]
_Move = npt.NDArray[np.float64]


def _stopped(baseline: _Pair, candidate: _Pair, again: _Pair, how_far: bool) -> str:
    """Why the copies of one shape did not move between two looks as the baseline's did; or nothing."""
    ours, same, now = map(_movement, (baseline, again, candidate))
    if not ours or len(ours) != len(same) or not _apart(ours, same) <= MOVES_APART / 2:
        return ""
    if len(now) < len(ours):
        return "a copy of the weights no longer moves"
    if len(now) > len(ours) or not how_far or not _apart(ours, now) > MOVES_APART:
        return ""  # a remedy may keep copies of its own
    return "a copy of the weights moves otherwise"


def _movement(pair: _Pair) -> list[_Move]:
    """How those moved that are others than before; not known (NaN) where some came or went."""
    then, now = pair
    stood = {seen.digest for seen in then} & {seen.digest for seen in now}
    before, after = ([seen for seen in side if seen.digest not in stood] for side in (then, now))
    if len(before) != len(after):
        return [np.array([math.nan])] * len(after)
    return [b.values() - a.values() for a, b in zip(before, after, strict=True)]


def _apart(ours: list[_Move], theirs: list[_Move]) -> float:
    """Norm of the difference of all movements, over that of the first ones; NaN where it is not known."""
    if any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
        return math.nan
    whole = math.sqrt(sum(float(a @ a) for a in ours))
    return math.sqrt(sum(float((a - b) @ (a - b)) for a, b in zip(ours, theirs, strict=True))) / whole if whole else 0.0


def _files(baseline: Observation, candidate: Observation, again: Observation) -> Check:
    for number, (b, c, a) in enumerate(zip(baseline.steps, candidate.steps, again.steps, strict=False)):
        if b.file_writes == a.file_writes != c.file_writes:
            reason = f"{c.file_writes} files are written in step {number + 1}, the baseline writes {b.file_writes}"
            return Check("files", "changed", reason)
        if b.saved == a.saved != c.saved:
            reason = f"what torch.save is given in step {number + 1} has other names, shapes or dtypes"
            return Check("files", "changed", reason)
    return Check("files", "exact")


def _printed(
    baseline: Observation, candidate: Observation, again: Observation, other_data: bool, precision: str
) -> Check:
    """As many lines of each kind, and on the same data the numbers in them those of the baseline, not of the line
    before."""
    name = "printed"
    if baseline.printed is None or candidate.printed is None or again.printed is None:
        return Check(name, "exact")
    for line, rows in baseline.printed.items():
        same, found = again.printed.get(line, ()), candidate.printed.get(line, ())
        unsteady = abs(len(same) - len(rows))
        if unsteady > 1:
            continue
        if abs(len(found) - len(rows)) > max(unsteady, len(rows) > CUT):  # the last of many may be cut off
            reason = f"{len(found)} lines like {line[:60]!r} are printed, the baseline prints {len(rows)}"
            return Check(name, "changed", reason)
        columns = [] if other_data else [list(zip(*r, strict=False)) for r in (rows, same, found)]
        for ours, own, theirs in zip(*columns, strict=False):
            num = min(map(len, (ours, own, theirs)))
            if num > LINES and ours[:num] == own[:num] and _stale(ours[:num], theirs[:num], precision):
                return Check(name, "changed", f"numbers in lines like {line[:60]!r} are not those of their step")
    return Check(name, "exact")


def _stale(ours: Sequence[str], theirs: Sequence[str], precision: str) -> bool:
    """Whether the last few numbers of a column lie as far from the baseline's as its own lie from each other."""
    b, c = [float(x) for x in ours[-LINES - 1 :]], [float(x) for x in theirs[-LINES - 1 :]]
    away = statistics.fmean(abs(x - y) for x, y in zip(b[1:], c[1:], strict=True))
    moves = statistics.fmean(abs(x - y) for x, y in itertools.pairwise(b))
    digits = max(len(text.partition(".")[2]) for text in ours)
    if precision and not digits:  # a choice among near equals: a token, a count of hits
        return False
    least = max(2 * 10.0**-digits, (LOWERED if precision else EQUAL) * max(map(abs, b)))
    return not (away <= least or away <= moves / 2) and math.isfinite(moves)


def _epochs(baseline: Observation, candidate: Observation, again: Observation, order_may_change: bool) -> Check:
    """Whole epochs as sets: their indices, and items fetched from fixed random states."""
    name = "epochs"
    if not len(baseline.epochs) == len(candidate.epochs) == len(again.epochs):
        return Check(name, "unverified" if order_may_change else "exact", "other loaders were read")
    proven = True
    for b, c in zip(baseline.epochs, candidate.epochs, strict=True):
        if order_may_change and b.indices is not None and c.indices is None:
            return Check(name, "unverified", f"the samples of {c.dataset} can't be listed as the baseline's can")
    for b, c, a in zip(baseline.epochs, candidate.epochs, again.epochs, strict=True):
        if reason := _other_epoch(b, c, a):
            return Check(name, "wrong", reason)
        if reason := _same_draws(b, c):
            return Check(name, "changed", reason)
        proven = proven and b.indices is not None and c.indices is not None and not b.draws_alone
    if not order_may_change:
        return Check(name, "exact")
    words = "the same samples in an epoch" if proven else "not all samples could be compared: moments and repeats were"
    return Check(name, "exact" if proven else "bounded", words)


def _same_draws(b: Epoch, c: Epoch) -> str:
    """How workers that the candidate has more repeat draws of a generator that each has a copy of; or nothing."""
    if not c.draws_alone or c.workers_seeded or c.workers <= b.workers:
        return ""
    if b.workers <= 1 < c.workers:
        return (
            f"each of {c.workers} workers draws the same random numbers: {c.dataset} has a generator of its own, each "
            "worker a copy of it, and no worker_init_fn seeds them"
        )
    if not b.workers and not c.workers_stay:
        return (
            f"each epoch draws the same random numbers: {c.dataset} has a generator of its own, the worker of each "
            "epoch begins with a copy of it, and no worker_init_fn seeds it"
        )
    return ""


def _other_epoch(b: Epoch, c: Epoch, a: Epoch) -> str:
    """How an epoch differs in what two runs of the baseline agree on; or nothing."""
    if b.num is not None and c.num is not None and b.num == a.num != c.num:
        return f"an epoch of {b.dataset} has {c.num} samples, the baseline's {b.num}"
    if b.unique is not None and c.unique is not None and b.unique == a.unique != c.unique:
        return f"an epoch of {b.dataset} has {c.unique} different samples, the baseline's {b.unique}"
    if b.indices is not None and c.indices is not None and b.indices == a.indices != c.indices:
        return f"an epoch of {b.dataset} holds other samples"
    if b.draws_alone == a.draws_alone != c.draws_alone:
        said = "vary no more" if b.draws_alone else "vary"
        return f"samples of {b.dataset} {said} from the same random state"
    collated = b.batch is not None and c.batch is not None and b.items.keys() == c.items.keys()
    if collated and b.batch == c.batch:  # a data set that makes whole batches at once has its samples in another form
        return ""
    for index in b.items.keys() & c.items.keys():
        if b.items[index] == a.items.get(index) != c.items[index]:
            return f"sample {index} of {b.dataset} is another from the same random state"
    return f"the same samples of {b.dataset} make another batch" if collated and b.batch == a.batch != c.batch else ""


def _moments(baseline: Observation, candidate: Observation) -> Check:
    """Means of what models are given, where the order may change: augmentation that is gone moves them. Each call
    counts by its elements: sequences of like length in one batch make short calls and long ones."""
    name = "inputs"
    spread, _ = _weighted(_each_moment(baseline, 1))
    for which, word in enumerate(("mean", "spread")):
        ours, theirs = (_each_moment(run, which) for run in (baseline, candidate))
        if min(len(ours), len(theirs)) < 2:
            continue
        (our, our_error), (their, their_error) = _weighted(ours), _weighted(theirs)
        if abs(our - their) > max(DEVIATIONS * math.hypot(our_error, their_error), TOLERANCE * spread):
            said = f"the {word} of what models are given is {their:.3g}, the baseline's {our:.3g}"
            return Check(name, "wrong", said + _less_padding(ours, theirs))
    return Check(name, "exact")


def _less_padding(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> str:
    """Why so, where as many samples come with fewer elements: what no mask shows as padding counts as data."""
    had, given = (sum(weight for _, weight in side) / len(side) for side in (ours, theirs))
    if given >= LESS * had:
        return ""
    return (
        f": it is given {1 - given / had:.0%} fewer elements, as if padding had gone, and no mask says which are "
        "padding. A model that pools or attends over padding gives other numbers with less of it; where yours does "
        "not, give it a mask, or make such batches by hand"
    )


def _weighted(values: list[tuple[float, float]]) -> tuple[float, float]:
    """The mean of (value, weight) and its standard error, that of a ratio (Cochran 1977, 2.11); of equal weights the
    usual one."""
    total = sum(weight for _, weight in values)
    if len(values) < 2 or not total:
        return math.nan, math.nan
    mean = sum(value * weight for value, weight in values) / total
    squares = sum((weight * (value - mean)) ** 2 for value, weight in values)
    return mean, math.sqrt(squares * len(values) / (len(values) - 1)) / total


def _each_moment(run: Observation, which: int) -> list[tuple[float, float]]:
    """(the moment, the elements that it is of) of each training call."""
    calls = (call.data.moments for step in run.steps for call in step.calls if call.training)
    return [(moments[which], moments[2]) for moments in calls if len(moments) > 2]
