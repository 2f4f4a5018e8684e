"""Are the candidate's tensors as close to float64 as the baseline's own, and of the same scale and direction?

For tensor t with reference r: e(v) = ||v - r||. Pass where e(candidate) <= 2 own(t) (more for small ones), and own(t)
is the largest of e(baseline), what the baseline errs in its worst step scaled by ||r||, the noise between two runs of
it, the median of e(baseline) over tensors of that kind scaled by ||r||, SUMMED roundings of it, and one rounding at the
root mean square of all tensors of that kind. Twice the naive version's error is the rule of FlashAttention's and
torch._dynamo's own tests. One step's error is a single draw, in a deep net along a single direction, and the ratio of
two draws has no bounds: so it is held against all steps. The other terms keep a lucky baseline, or a gradient that is
nothing but rounding, from failing a good candidate. Of an update a few elements may stray whose gradient is faint.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator

from gobrrr.guard.model.observation import Observation, Step
from gobrrr.guard.model.tensor_digest import EPS, cosine, distance, distance_but_coins, same
from gobrrr.guard.model.verdict import VERDICTS, Check
from gobrrr.guard.verdicts.worst_step import COINS, KINDS, Tensors, Worst, dips, parameter

FACTOR, SMALL_FACTOR, TINY_FACTOR = 2.0, 8.0, 10.0
SMALL, TINY = 1000, 10
"""Elements below which the ratio of two errors is luck: torch._dynamo.utils.same takes 8 and 10 there. All tensors of a
kind together must keep to 2 all the same."""
AMPLIFIED = 8.0
"""Wider limits where rounding is amplified: in steps that begin from weights that differ already; and for the update of
one tensor (all together keep to the plain limit), since Adam divides by gradients that are rounding."""
STEPS = 4.0
"""Most error of the few elements, as a multiple of the root mean square of their tensor's update: Adam's sign, turned,
is two."""
IMPLAUSIBLE = 0.03
"""A float32 baseline this far from float64 in its first outputs drew other numbers there: no reference. In a later step
its own numbers say nothing any more."""
UNREFERENCED = {"float32": 1e-4, "float64": 1e-9, "bfloat16": 4e-2, "float16": 1e-2}
"""Relative error allowed, by dtype, where there is no float64 run: a hundred to a thousand roundings."""
LOWER = {"bfloat16": 0.2, "float16": 0.05, "tf32": 0.05}
"""Most relative error of all gradients or updates together that a lower precision explains; of outputs half of it."""
SIGNAL = 10.0
"""A tensor whose reference is less than this times its own error is rounding: its direction says nothing."""
SUMMED = 128.0
"""Roundings that any kernel may err: a sum of n terms errs sqrt(n) of them, and gradients sum over thousands of places.
(A convolution's weight gradient in channels_last: 84 in all where the plain kernel has 9; compiled: 134.)"""
SANE_COSINE, SANE_RATIO = 0.9, 1.25
"""Beyond these a tensor is not imprecise but wrong."""
COARSE_COSINE, COARSE_RATIO = 0.5, 2.0
"""The same for updates at a lower precision: Adam makes a full step of a gradient that is nothing but its rounding.

(The bias of an attention's keys: a third of the bias of q, k and v; the update has 1.22 times its norm.) And of
gradients where nothing but the precision is lowered, since sums over all places cancel: token types of a sentence
encoder under bf16 have 0.68 times the norm, cosine 0.93, in one step of twelve. All together are held against LOWER."""


def factor(numel: int) -> float:
    """How many times the baseline's own error a tensor of so many elements may err."""
    return FACTOR if numel >= SMALL else SMALL_FACTOR if numel > TINY else TINY_FACTOR


class Runs:
    """The runs that are compared. `naive`: the plain program at the candidate's lower precision, where that is one."""

    def __init__(
        self, baseline: Observation, candidate: Observation, again: Observation | None,
        reference: Observation | None, naive: Observation | None, precision: str, is_naive: bool = False,
    ) -> None:  # fmt: skip
        """`is_naive`: the candidate is nothing but the lower precision."""
        self.baseline, self.candidate, self.again, self.naive = baseline, candidate, again, naive
        self.precision, self.is_naive = precision, is_naive
        self.reference = reference if reference is not None and plausible(baseline, reference) else None
        self.num = min(baseline.num_looked, candidate.num_looked)
        self.dips = dips(self.reference or baseline, "gradients", self.num) if precision else {}
        """Where a lower precision is judged, gradients of a batch whose terms cancel: a classifier at its start, eight
        labels of each kind, has 0.04 of the norm around it, and bf16, which errs there as in any step, leaves a
        direction of cosine 0.76. An optimizer takes a mean over steps."""
        self.begun = list(_beginnings(baseline, candidate))[: self.num]
        """For each step, how alike its beginning was, as in Step.begun."""

    def of(self, part: Callable[[Observation], Observation]) -> Runs:
        """A part of each of these runs."""
        again, reference, naive = (run and part(run) for run in (self.again, self.reference, self.naive))
        ours, theirs = part(self.baseline), part(self.candidate)
        return Runs(ours, theirs, again, reference, naive, self.precision, self.is_naive)

    @property
    def apart(self) -> bool:
        """Whether some step began from weights that were the candidate's own."""
        return "own" in self.begun


def _beginnings(baseline: Observation, candidate: Observation) -> Iterator[str]:
    """A step begins alike where it was set to the baseline's state, or where nothing differed before it."""
    equal = True
    for b, c in zip(baseline.steps, candidate.steps, strict=False):
        yield "baseline" if equal else c.begun
        equal = equal and _bitwise(b, c)


def same_numbers(a: Observation, b: Observation) -> bool:
    """Whether two runs are equal in all that was looked at, bit by bit."""
    return len(a.steps) == len(b.steps) and all(map(_bitwise, a.steps, b.steps))


def _bitwise(a: Step, b: Step) -> bool:
    """Whether two steps are equal in all that was looked at."""
    both = ((read(a), read(b)) for read in KINDS.values())
    return all(x.keys() == y.keys() and all(same(seen, y[name]) for name, seen in x.items()) for x, y in both)


def plausible(baseline: Observation, reference: Observation) -> bool:
    """Whether a float64 run is the same computation: its first outputs are where float32's are."""
    if not baseline.num_looked or not reference.num_looked:
        return False
    return _near(baseline.steps[0], reference.steps[0])


def _near(step: Step, true: Step) -> bool:
    for kind in ("outputs", "loss"):
        ours, theirs = KINDS[kind](step), KINDS[kind](true)
        if set(ours) != set(theirs):
            return False
        floats = [n for n in ours if ours[n].dtype in EPS and ours[n].shape == theirs[n].shape]
        if any(not distance(ours[n], theirs[n]) <= IMPLAUSIBLE * (theirs[n].norm or 1.0) < math.inf for n in floats):
            return False
    return True


def checks(runs: Runs, evidence: dict[str, float | None]) -> Iterator[Check]:
    """One check per kind of tensor, over all steps."""
    if runs.reference is None:
        yield Check("reference", "bounded", "no float64 run could be had: errors are counted from float32")
    numbers = range(runs.num)
    noise = {number: _without_signal(runs, number) for number in numbers}
    gradients = Worst(runs.baseline, runs.reference, "gradients", noise)
    for kind in KINDS:
        worst = Worst(runs.baseline, runs.reference, kind, noise)
        naive = Worst(runs.naive, runs.reference, kind, noise, runs.dips if kind == "gradients" else {})
        if kind in COINS:
            worst.no_better_than(gradients)
        found = [_kind(runs, kind, number, noise[number], (worst, naive)) for number in numbers]
        told = [each for each in found if each is not None]
        if not told:
            continue
        check, ratio = max(told, key=lambda each: (VERDICTS.index(each[0].verdict), each[1]))
        evidence[f"{kind}_error_ratio"] = ratio if math.isfinite(ratio) else None
        yield check


def sane_steps(baseline: Observation, candidate: Observation, reference: Observation | None) -> int:
    """Steps up to the first in which the baseline itself is nowhere near float64, or no longer finite."""
    true = reference.steps if reference is not None and plausible(baseline, reference) else ()
    for number, (b, c) in enumerate(zip(baseline.steps, candidate.steps, strict=False)):
        known = 0 < number < len(true)
        if not all(map(math.isfinite, b.losses)) or (known and not (_near(b, true[number]) or _bitwise(b, c))):
            return number
    return max(len(baseline.steps), len(candidate.steps))


def _without_signal(runs: Runs, number: int) -> frozenset[str]:
    """Parameters whose gradient in a step is little but rounding: their update by Adam is a coin."""
    nothing = Worst(None, None, "gradients", {})
    step = _Step(runs, "gradients", number, (nothing, nothing))
    return frozenset(n for n in step.names if step.true[n].norm < SIGNAL * step.usual[n])


def _kind(
    runs: Runs, kind: str, number: int, without_signal: frozenset[str], worst: tuple[Worst, Worst]
) -> tuple[Check, float] | None:
    """The check of one kind in one step, and the largest error ratio."""
    read = KINDS[kind]
    ours, theirs = read(runs.baseline.steps[number]), read(runs.candidate.steps[number])
    if not ours:
        return None
    if missing := [n for n in ours if n not in theirs]:
        return Check(kind, "unverified", f"{missing[0]} was not seen in step {number + 1}", missing[0]), math.inf
    if all(same(ours[n], theirs[n]) for n in ours):
        return Check(kind, "exact"), 0.0
    return _Step(runs, kind, number, worst).check(without_signal)


class _Step:
    """One kind of tensor in one step. `worst`: of the baseline and of the naive version, over all steps."""

    def __init__(self, runs: Runs, kind: str, number: int, worst: tuple[Worst, Worst]) -> None:
        self.runs, self.kind, self.number = runs, kind, number
        self.ours, self.theirs = self._of(runs.baseline), self._of(runs.candidate)
        true = self._of(runs.reference).items()
        picked = {n: t if t.shape == self.ours[n].shape else self.ours[n] for n, t in true if n in self.ours}
        self.true = picked or self.ours  # of what float64 picks another number of, the baseline's
        self.again = self._of(runs.again)
        self.naive = self._of(runs.naive)
        self.names = [n for n in self.ours if n in self.true]
        whose = (runs.candidate, runs.reference or runs.baseline) if kind == "updates" else (None, None)
        self._gradients = [self._of(run, "gradients") for run in whose]
        self.is_late = runs.reference is not None and number >= len(runs.reference.steps)
        begun = runs.begun[number]
        self.alike = begun == "baseline" or (begun == "part" and kind not in COINS)
        self._later = 1.0 if self.alike and not self.is_late else AMPLIFIED
        self._is_gradient = kind == "gradients" and self.alike
        self._worst = worst
        numel = sum(self.ours[n].numel for n in self.names) or 1
        self.rms = math.sqrt(sum(self.true[n].norm ** 2 for n in self.names) / numel)
        self.usual = self._errors_of(self.ours, worst[0])
        """Error of the baseline by name, with the floors."""
        lowered = self._errors_of(self.naive, worst[1]) if self.naive else self.usual
        self.own = {n: max(self.usual[n], lowered[n]) for n in self.names}
        """Error of the baseline, or of the naive version at that precision where it errs more."""

    def _of(self, run: Observation | None, kind: str = "") -> Tensors:
        seen = run is not None and self.number < len(run.steps)
        return KINDS[kind or self.kind](run.steps[self.number]) if run is not None and seen else {}

    def _errors_of(self, run: Tensors, worst: Worst) -> dict[str, float]:
        plain = {n: distance(run[n], self.true[n]) if n in run else math.inf for n in self.names}
        relative = [e / self.true[n].norm for n, e in plain.items() if self.true[n].norm and math.isfinite(e)]
        middle = statistics.median(relative) if relative else 0.0
        found = {}
        for name, error in plain.items():
            seen, true = self.ours[name], self.true[name]
            noise = distance(seen, self.again[name]) if name in self.again else 0.0
            if self.runs.reference is None or self.is_late:
                error = max(error, UNREFERENCED.get(self.runs.precision or seen.dtype, 1e-4) * true.norm)
            eps = EPS.get(self.runs.precision, seen.eps)
            # Beside large tensors of its kind: what a program in bfloat16 errs is known from its own run.
            among = eps if self.runs.precision else min(eps, EPS["float32"])
            floor = max(among * self.rms * math.sqrt(seen.numel), eps * true.norm)
            relative_error, absolute = worst.of(name, seen)
            usual = max(middle, relative_error, SUMMED * min(seen.eps, EPS["float32"]))
            found[name] = max(error, noise, usual * true.norm, floor)
            if true.norm < SIGNAL * found[name]:  # its norm is rounding too: relative to it nothing can be said
                found[name] = max(found[name], absolute)
        return found

    def check(self, without_signal: frozenset[str]) -> tuple[Check, float]:
        errors = {n: self._error(n) for n in self.names}
        told = [n for n in self.names if not (self.kind in COINS and parameter(n) in without_signal)]
        if chosen := {n for n in told if self._is_chosen(n)}:
            told = [n for n in told if n not in chosen]
            errors = {n: error for n, error in errors.items() if n not in chosen}
            if not self.runs.baseline.training:  # nothing follows that would tell
                reason = "is a choice: rounding makes another, no error can be counted from it"
                name = min(chosen)
                return Check(self.kind, "unverified", f"{name} in step {self.number + 1} {reason}", name), 0.0
        if self.kind == "updates" and (jumps := [n for n in self.names if n not in told and self._jumps(n)]):
            moved = self.theirs[jumps[0]].norm
            reason = f"{jumps[0]} in step {self.number + 1} moves by {moved:.3g}, far beyond any step"
            return Check(self.kind, "wrong", reason, jumps[0]), math.inf
        ratios = {n: errors[n] / self.own[n] if self.own[n] else (math.inf if errors[n] else 0.0) for n in told}
        if not ratios:
            return Check(self.kind, "bounded" if chosen else "equivalent"), 0.0
        most = max(ratios.values())
        if insane := [n for n in told if self._insane(n, errors[n])]:
            return Check(self.kind, "wrong", self._scale(insane[0]), insane[0]), most
        if self.runs.precision and not self.alike:  # lower precision drifts away fast: the losses are judged instead
            return Check(self.kind, "bounded"), most
        far = [n for n in told if not ratios[n] <= self._limit(n)] or self._far_together(ratios)  # NaN is far too
        if far and (self.naive or not self.runs.precision):
            name = far[0]
            reason = (
                f"{name} in step {self.number + 1} errs {ratios[name]:.3g} times as much as the baseline does, "
                f"{errors[name] / (self.true[name].norm or 1.0):.2g} of its norm"
            )
            return Check(self.kind, "changed", reason, name), most
        if self.runs.precision:
            return self._lowered(errors), most
        return Check(self.kind, "bounded" if self.runs.reference is None else "equivalent"), most

    def _error(self, name: str) -> float:
        """Return the error; in an update without the few elements whose gradient is near Adam's epsilon, which are off
        by a step."""
        theirs, true = self.theirs[name], self.true[name]
        ours, reference = (run.get(name) for run in self._gradients)
        if ours is None or reference is None:
            return distance(theirs, true)
        return distance_but_coins(theirs, true, (ours, reference), STEPS * true.norm / math.sqrt(true.numel or 1))

    def _is_chosen(self, name: str) -> bool:
        """An output that only a lower precision's rounding makes another one: how many rows are picked (pairs that a
        miner finds, boxes that are left over), and which, where the candidate is the naive version itself. As large on
        average they must be all the same."""
        theirs, true = self.theirs[name], self.true[name]
        if not self.runs.precision or self.kind != "outputs" or theirs.num_bad or theirs.dtype != true.dtype:
            return False
        low, high = sorted(each.norm / math.sqrt(each.numel or 1) for each in (theirs, true))
        if low * SANE_RATIO < high:
            return False
        if theirs.shape == true.shape:
            return true.dtype not in EPS and self.runs.is_naive
        most = 0.5 * LOWER.get(self.runs.precision, 0.0) * true.numel
        return theirs.shape[1:] == true.shape[1:] and abs(theirs.numel - true.numel) <= most

    def _jumps(self, name: str) -> bool:
        """Where a gradient is but rounding an optimizer's step is a coin, and no larger than a step."""
        usual = self.rms * math.sqrt(self.ours[name].numel)
        return self.theirs[name].norm > AMPLIFIED * max(self.ours[name].norm, self.true[name].norm, usual)

    def _limit(self, name: str) -> float:
        return factor(self.ours[name].numel) * (AMPLIFIED if self.kind in COINS else self._later)

    def _far_together(self, ratios: dict[str, float]) -> list[str]:
        """The worst tensor where all of them together are too far: the root mean square of their ratios."""
        numel = sum(self.ours[n].numel for n in ratios)
        together = math.sqrt(statistics.fmean(r * r for r in ratios.values()))
        return [] if together <= factor(numel) * self._later else [max(ratios, key=lambda n: ratios[n])]

    def _lowered(self, errors: dict[str, float]) -> Check:
        """All of it together must not be further off than the precision explains, whatever the naive version does."""
        whole = math.sqrt(sum(max(self.true[n].norm, self._dip_norm(n)) ** 2 for n in errors)) or 1.0
        error = math.sqrt(sum(each**2 for each in errors.values())) / whole
        most = LOWER.get(self.runs.precision, 0.0) * (0.5 if self.kind in ("outputs", "loss") else 1.0)
        if self.kind in COINS or error <= most:  # Adam's first update is the sign of each gradient: judged there
            return Check(self.kind, "bounded")
        return Check(self.kind, "changed", f"{self.runs.precision} moves them by {error:.2g} of their norm, more than "
                     f"the {most:g} that it explains", next(iter(errors)))  # fmt: skip

    def _insane(self, name: str, error: float) -> bool:
        """Another scale or direction, where the tensor is more than rounding."""
        ours, theirs, true = self.ours[name], self.theirs[name], self.true[name]
        if ours.dtype not in EPS:
            return error > self._limit(name) * self._own_choices(name) and self.kind != "loss"
        if true.norm < SIGNAL * self.usual[name] or error <= self._limit(name) * self.usual[name]:
            return False
        if not math.isfinite(error):
            return True
        # As far off as the gradient of the naive version at a lower precision.
        as_naive = self.naive and self._is_gradient and error <= self._limit(name) * self.own[name]
        if error <= LOWER.get(self.runs.precision, 0.0) * self._dip_norm(name) or as_naive:
            return False
        low, high = sorted((theirs.norm, true.norm))
        coarse = bool(self.runs.precision) and (self.kind in COINS or (self._is_gradient and self.runs.is_naive))
        ratio, least = (COARSE_RATIO, COARSE_COSINE) if coarse else (SANE_RATIO, SANE_COSINE)
        return low * ratio < high or cosine(theirs, true) < least

    def _dip_norm(self, name: str) -> float:
        """Return the norm for a gradient that dips in this step, where a lower precision is judged; else 0."""
        known = self.runs.dips if self.kind == "gradients" else {}
        return known.get((self.number, name, self.ours[name].shape), 0.0)

    def _own_choices(self, name: str) -> float:
        """Return the plain version's error at that precision in choices and counts, in its worst step: no rounding."""
        noise = distance(self.ours[name], self.again[name]) if name in self.again else 0.0
        return max(noise, *(worst.of(name, self.ours[name])[1] for worst in self._worst))

    def _scale(self, name: str) -> str:
        theirs, true = self.theirs[name], self.true[name]
        if theirs.shape != true.shape:
            return f"{name} has the shape {theirs.shape}, not {true.shape}"
        times, turned = theirs.norm / true.norm if true.norm else math.inf, cosine(theirs, true)
        return f"{name} in step {self.number + 1} has {times:.3g} times the norm that it should, cosine {turned:.3f}"


def first_to_diverge(runs: Runs) -> str:
    """The first module, in the order in which they run, whose output in the first call is too far off; or nothing."""
    true = _inside(runs.reference) or _inside(runs.baseline)
    ours, theirs = _inside(runs.naive) or _inside(runs.baseline), _inside(runs.candidate)
    for name, seen in ours.items():
        if name not in theirs or name not in true or seen.dtype not in EPS:
            continue
        own = max(distance(seen, true[name]), 16 * seen.eps * true[name].norm)
        if distance(theirs[name], true[name]) > FACTOR * own:
            return name
    return ""


def _inside(run: Observation | None) -> Tensors:
    return run.steps[0].calls[0].inside if run is not None and run.steps and run.steps[0].calls else {}
