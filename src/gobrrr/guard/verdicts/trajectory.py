"""Do the candidate's losses stay beside the baseline's, closer than the baseline's own seeds are to each other?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from gobrrr.guard.model.observation import Observation
from gobrrr.guard.model.verdict import Check

FACTOR = 2.0  # multiple of the losses' known distance that is allowed: closeness has the same for tensors
OTHER_DATA = 1.5
"""Most distance of a run that draws other numbers, as a multiple of the baseline's farthest other seed. It is another
seed itself, so that of two others the nearest would be nearer in two of three honest cases."""
STRAYS = 0.02
"""Share of the losses that a naive version at a lower precision may be away to say what is near: one that strays
further proves nothing, and other seeds decide. (BERT in bf16: 4e-5 in twelve steps.)"""
NAME = "trajectory"
GROWN = 10.0
"""Multiple of its first loss that all last losses exceed where a program's training diverges: where it learns they
fall, and where it learns nothing they stay. (SGD with a rate of 4: 29 to 130 times, a rate that is merely high: 2.)"""


def check(
    baseline: Observation, candidate: Observation, seeds: Sequence[Observation], reference: Observation | None,
    evidence: dict[str, float | None], apart: bool = True, same_data: bool = True, naive: Observation | None = None,
) -> Check:  # fmt: skip
    """Twin runs' losses, step by step; where none of the steps began `apart`, each was compared by itself.

    The band is the distance from the baseline to its nearest other seed, or twice its distance from float64 or from the
    `naive` version at the candidate's lower precision where that is more; where the data are not the `same_data`,
    OTHER_DATA times that to its farthest other seed."""
    ours, theirs = losses(baseline), losses(candidate)
    if not baseline.training:
        return Check(NAME, "exact")
    if not ours or not theirs:
        return Check(NAME, "unverified", "no loss was captured")
    whole = baseline.complete and candidate.complete
    num = min(len(baseline.steps), len(candidate.steps))
    planned = max(baseline.planned, candidate.planned)
    if num < planned and not whole:
        return Check(NAME, "unverified", f"{num} twin steps were seen, {planned} are needed")
    if ours == theirs or not apart:
        return Check(NAME, "exact")
    if not same_data and any(step.begun != "own" for step in candidate.steps):
        return Check(NAME, "unverified", "steps with other data began from the baseline's weights: they say nothing")
    gap = distance(ours, theirs)
    others = [distance(ours, losses(seed)) for seed in seeds if losses(seed)]
    true, lowered = (distance(ours, found) if (found := losses(run)) else 0.0 for run in (reference, naive))
    near = lowered <= STRAYS * math.sqrt(statistics.fmean(loss * loss for loss in ours))
    from_known = FACTOR * max(true, lowered if near else 0.0)
    evidence["trajectory_gap"] = gap
    if not others and not from_known:
        return Check(NAME, "unverified", "no other seed of the baseline was run")
    band = max(min(others, default=0.0), from_known) if same_data else OTHER_DATA * max(others, default=0.0)
    evidence["trajectory_band"] = band
    if not gap <= band:
        return Check(NAME, "changed", f"losses are {gap:.2g} away from the baseline's, its own seeds {band:.2g}")
    late, band_late = _late(ours, theirs), max(min((_late(ours, losses(s)) for s in seeds), default=0.0), band)
    if not late <= band_late:
        return Check(NAME, "changed", f"the last losses are {late:.2g} away from the baseline's")
    return Check(NAME, "equivalent")


def diverges(run: Observation) -> str:
    """How a run's own losses show that its training diverges; nothing where they do not."""
    found = losses(run)
    if not all(map(math.isfinite, found)):
        return "its own losses are not finite"
    first, last = found[:1], found[len(found) - len(found) // 3 :]
    if not last or not min(last) > GROWN * first[0] > 0:
        return ""
    return f"its own losses grow to {min(last) / first[0]:.0f} times the first and stay there"


def losses(run: Observation | None) -> list[float]:
    """The mean loss of each step that has one; empty where a step has calls of models and none. (Two optimizers that
    step on one backward pass make two steps of it.)"""
    if run is None or not all(step.losses for step in run.steps if step.calls and step.updates != {}):
        return []
    return [statistics.fmean(step.losses) for step in run.steps if step.losses]


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Root mean square over the steps that both made; infinite where there are none."""
    num = min(len(a), len(b))
    return math.sqrt(statistics.fmean((x - y) ** 2 for x, y in zip(a, b, strict=False))) if num else math.inf


def _late(a: Sequence[float], b: Sequence[float]) -> float:
    """Between the means of the last third."""
    num = min(len(a), len(b))
    start = num - max(1, num // 3)
    return abs(statistics.fmean(a[start:num]) - statistics.fmean(b[start:num])) if num else math.inf
