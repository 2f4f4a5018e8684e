"""Observations in, verdict out. Pure, and fails closed: what was not seen is unverified."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from gobrrr.guard.model.observation import Observation
from gobrrr.guard.model.verdict import GREEN, Check, Guarded, worst
from gobrrr.guard.verdicts import closeness, edits, side_effects, structure, tokens, trajectory

BIT_BY_BIT = "observed: without an optimizer, what transforms of torch.func give can be compared bit by bit alone"
LOOKED = 2
"""Steps that must have been looked at: a wrong update shows in the second one."""


def judge(
    baseline: Observation, candidate: Observation, *, again: Observation | None, reference: Observation | None = None,
    naive: Observation | None = None, is_naive: bool = False, seeds: Sequence[Observation] = (), precision: str = "",
    order_may_change: bool = False, regroups: bool = False, accepted: Collection[str] | None = None,
) -> Guarded:  # fmt: skip
    """Judge what a candidate did to the numbers.

    again: the baseline once more, the noise floor. reference: the same program in float64. naive: the program with
    nothing but the candidate's lower `precision` (bfloat16, float16 or tf32); is_naive: the candidate is that. seeds:
    the baseline from other seeds.
    order_may_change: other draws or another order of samples are what was asked for; regroups: samples of like length
    in one batch. accepted: what the user accepts of an edit of the source (edits.py); None for a remedy, which leaves
    the source alone.

    Where the baseline's training diverges nothing is called wrong: another rounding, or another order, ends elsewhere.
    """
    evidence: dict[str, float | None] = {}
    if accepted is not None:
        candidate = edits.of_common_buffers(baseline, edits.aligned(baseline, candidate))
        again, reference = (run and edits.of_common_buffers(baseline, run) for run in (again, reference))
        baseline = edits.of_common_buffers(baseline, baseline)
        if not baseline.training and not candidate.training:
            runs_of = edits.regrouped(baseline, candidate, again, reference)
            baseline, candidate, again, reference = runs_of[0] or baseline, runs_of[1] or candidate, *runs_of[2:]
    lost = trajectory.diverges(baseline)
    sane = closeness.sane_steps(baseline, candidate, reference)
    found: list[Check] = []
    if sane < min(len(baseline.steps), len(candidate.steps)):
        far = f"not finite or more than {closeness.IMPLAUSIBLE:.0%} from float64: it diverges by itself"
        found = [Check("observed", "unverified", f"from step {sane + 1} on the program's own numbers are {far}")]
    baseline, candidate = _up_to(sane, baseline), _up_to(sane, candidate)
    runs = closeness.Runs(baseline, candidate, again, reference, naive, precision, is_naive)
    checks = _checks(runs, seeds, order_may_change, evidence, regroups, accepted is not None)
    found += checks if accepted is None else edits.settled(checks, baseline, candidate, accepted)
    verdict = worst(found, evidence)
    if (baseline.transformed or candidate.transformed) and verdict.verdict != "exact":
        return Guarded("unverified", (BIT_BY_BIT, *verdict.reasons), evidence=evidence)
    if lost and verdict.verdict not in (*GREEN, "unverified"):
        said = f"observed: {lost}: the program diverges by itself, and no change of it can be told from that"
        return Guarded("unverified", (said, *verdict.reasons), evidence=evidence)
    if verdict.verdict in GREEN or verdict.first_module.count("#") == 0:
        return verdict
    module = closeness.first_to_diverge(runs) or verdict.first_module
    return Guarded(verdict.verdict, verdict.reasons, module, evidence)


def _up_to(num: int, run: Observation) -> Observation:
    """Its first steps: what a program that diverges does afterwards says nothing of a change."""
    return run if num >= len(run.steps) else msgspec.structs.replace(run, steps=run.steps[:num], complete=False)


def _checks(
    runs: closeness.Runs, seeds: Sequence[Observation], order_may_change: bool, evidence: dict[str, float | None],
    regroups: bool, edited: bool,
) -> Iterator[Check]:  # fmt: skip
    baseline, candidate = runs.baseline, runs.candidate
    yield from _seen_enough(runs)
    yield from structure.checks(baseline, candidate, order_may_change, regroups)
    yield from side_effects.checks(baseline, candidate, runs.again, order_may_change, runs.precision)
    if not structure.same_data(baseline, candidate) and (order_may_change or not edited):
        # Tensors of other data cannot be compared; what is left is where the losses go.
        if order_may_change:
            yield trajectory.check(baseline, candidate, seeds, None, evidence, same_data=False)
        return
    if tokens.generates(baseline):
        yield tokens.check(baseline, candidate)
        return
    yield from closeness.checks(runs.of(edits.of_training) if edited and baseline.training else runs, evidence)
    yield trajectory.check(baseline, candidate, seeds, runs.reference, evidence, runs.apart, naive=runs.naive)


def _seen_enough(runs: closeness.Runs) -> Iterator[Check]:
    """Check that enough was observed before anything can be called right."""
    name = "observed"
    for who, run in (("baseline", runs.baseline), ("candidate", runs.candidate)):
        few = run.num_looked < min(LOOKED, len(run.steps) if run.complete else LOOKED)
        if not run.steps or few:
            yield Check(name, "unverified", f"too few steps of the {who} were looked at")
        elif run.training and not trajectory.losses(run):
            yield Check(name, "unverified", f"no loss of the {who} was captured")
        elif not run.training and not any(call.outputs for step in run.steps for call in step.calls):
            yield Check(name, "unverified", f"no output of the {who}'s models was captured")
        for remark in run.remarks:
            yield Check(name, "unverified", f"{who}: {remark}")
    if runs.again is None:
        yield Check(name, "unverified", "the baseline was not run twice: its own noise is not known")
    elif not structure.same_data(runs.baseline, runs.again):
        yield Check(name, "unverified", "two runs of the program are given different data: it cannot be repeated")
