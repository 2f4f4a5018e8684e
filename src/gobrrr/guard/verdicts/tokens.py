"""Compare the tokens of a program that generates text, one by one, in each of its sequences."""

from __future__ import annotations

from gobrrr.guard.model.observation import Call, Observation
from gobrrr.guard.model.tensor_digest import same
from gobrrr.guard.model.verdict import Check

SAMPLED = "tokens are sampled, and were drawn otherwise: only do_sample=False can be compared"


def calls(run: Observation) -> list[Call]:
    """Its sequences, in order."""
    return [call for step in run.steps for call in step.calls if call.tokens]


def generates(run: Observation) -> bool:
    """Whether that is all it does."""
    every = [call for step in run.steps for call in step.calls]
    return not run.training and bool(every) and all(call.tokens for call in every)


def check(baseline: Observation, candidate: Observation) -> Check:
    """No rounding excuses another token: what follows it is another text."""
    for number, (ours, theirs) in enumerate(zip(calls(baseline), calls(candidate), strict=False)):
        first, second = (call.outputs[0] for call in (ours, theirs) if call.outputs)
        if same(first, second):
            continue
        if ours.sampled or theirs.sampled:
            return Check("outputs", "unverified", SAMPLED)
        both = zip(first.values().tolist(), second.values().tolist(), strict=False)
        apart = next((at for at, (a, b) in enumerate(both) if a != b), min(first.numel, second.numel))
        where = f"from token {apart + 1} on" if apart < len(first.values()) else "behind its tokens"
        return Check("outputs", "changed", f"sequence {number + 1} is another {where}")
    return Check("outputs", "exact")
