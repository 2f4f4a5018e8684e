"""Compare the tokens of a program that generates text, one by one, in each of its sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gobrrr.guard.model.observation import Call, Observation
from gobrrr.guard.model.tensor_digest import WHOLE, Seen, same
from gobrrr.guard.model.verdict import Check

Tokens = npt.NDArray[np.float64]
MOST_ANSWERS = 200
"""Answers that the test of distributions takes: its memory is their number times that of different tokens."""
DRAWS = 9_999
"""Exchanges that the test of distributions tries."""
CHANCE = 0.001
"""p value from which another distribution is told of (proposed: one number is judged once per edit)."""


def calls(run: Observation) -> list[Call]:
    """Its sequences, in order."""
    return [call for step in run.steps for call in step.calls if call.tokens]


def generates(run: Observation) -> bool:
    """Whether that is all it does."""
    every = [call for step in run.steps for call in step.calls]
    return not run.training and bool(every) and all(call.tokens for call in every)


def check(baseline: Observation, candidate: Observation) -> Check:
    """No rounding excuses another token: what follows it is another text."""
    pairs = list(zip(calls(baseline), calls(candidate), strict=False))
    for number, (ours, theirs) in enumerate(pairs):
        first, second = (call.outputs[0] for call in (ours, theirs) if call.outputs)
        if same(first, second):
            continue
        if ours.sampled and theirs.sampled:
            return _sampled([(a.outputs[0], b.outputs[0]) for a, b in pairs if a.outputs and b.outputs])
        both = zip(first.values().tolist(), second.values().tolist(), strict=False)
        apart = next((at for at, (a, b) in enumerate(both) if a != b), min(first.numel, second.numel))
        where = f"from token {apart + 1} on" if apart < len(first.values()) else "behind its tokens"
        return Check("outputs", "changed", f"sequence {number + 1} is another {where}")
    return Check("outputs", "exact")


def _sampled(pairs: Sequence[tuple[Seen, Seen]]) -> Check:
    """Say whether answers look like another distribution's. It is unverified either way: nobody knows whether answers
    are independent (a seed before each, a conversation)."""
    whole = [(a.values(), b.values()) for a, b in pairs if max(a.numel, b.numel) <= WHOLE][:MOST_ANSWERS]
    said = "tokens are sampled anew"
    if whole:
        chance = chance_of(whole)
        law = "another distribution, if they are independent" if chance <= CHANCE else "no other distribution"
        said += f": {len(whole)} answers show {law} (p = {chance:.2g})"
    return Check("outputs", "unverified", f"{said}; only do_sample=False can be compared")


def chance_of(pairs: Sequence[tuple[Tokens, Tokens]]) -> float:
    """Return the p value of two ways to sample answers to the same prompts: how often answers are as far apart after
    those of drawn pairs have been exchanged, by the tokens that they have, and by how long, varied and common they are.

    Exact where pairs are independent and both sample from one distribution, for then an exchange changes nothing that
    is not chance (Fisher's permutation test of pairs; the two tests share the level, after Bonferroni).
    """
    ids, all_counts = np.unique(np.concatenate([tokens for pair in pairs for tokens in pair]), return_counts=True)

    def counts(tokens: Tokens) -> npt.NDArray[np.float64]:
        return np.bincount(np.searchsorted(ids, tokens), minlength=len(ids)).astype(float)

    def looks(tokens: Tokens) -> list[float]:
        # sorted, for the same sum in any order
        common = np.log(np.sort(all_counts[np.searchsorted(ids, tokens)])).mean() if len(tokens) else 0.0
        return [len(tokens), len(np.unique(tokens)), float(common)]

    signs = np.random.default_rng(0).choice((-1.0, 1.0), (DRAWS, len(pairs)))
    chances = []
    for described in (counts, looks):
        apart = np.array([np.subtract(described(ours), described(theirs)) for ours, theirs in pairs])
        if described is looks:  # of three units
            apart /= np.sqrt(np.square(apart).sum(0)) + 1e-12
        products = apart @ apart.T
        as_far = np.einsum("ij,jk,ik->i", signs, products, signs, optimize=True) >= products.sum() * (1 - 1e-9)
        chances.append((1 + as_far.sum()) / (1 + DRAWS))
    return float(min(1.0, 2 * min(chances)))
