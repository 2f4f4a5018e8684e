"""Candidates: remedies that may be raced, and those that are compared in fresh processes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gobrrr.rules.model.finding import Saving
from gobrrr.trial.race.race_round import Stack

NOTHING = Saving()
WORTH = 0.01
"""Share of the step that must be left to gain for a look; half the band within which arms are equivalent."""


@dataclass(frozen=True)
class Candidate:
    """A remedy that applies, and what is expected of it, ns per step."""

    name: str
    predicted: Saving = NOTHING
    """Rehearsed where it was, else what the ledger allows."""
    conflicts: frozenset[str] = frozenset()
    named: bool = False
    """It is tried whatever the ledger allows: the user asked for it, or it is not time that is to be saved."""
    choice: int = 0
    """Its place among the remedies that the findings name: of two for the same cause the apter one comes first."""
    risk: int = 0
    """Risk of changing numbers: the riskiest is dropped first where the guard is red."""
    overlaps: frozenset[str] = frozenset()
    """Others that bring the same: one of them goes into a stack, the one that is shown to bring more."""
    unseen: str = ""
    """Change that no check of the numbers can see."""
    in_step: bool = False
    """It works on the step itself, and can't shorten the wait for a loader."""
    rehearsed: bool = False
    """Whether the prediction was measured on the run's own ops."""
    cause: str = ""
    """Code of the finding that calls for it; of a staple that none calls for, nothing."""
    reorders: bool = False
    """Samples or draws may come in another order with it: its guard takes a run more."""
    seen_ns: float = 0.0
    """Saving in ns that a search before the race saw of it, though it was not shown."""

    @property
    def hope(self) -> tuple[float, float]:
        """ns that it is expected to bring, and that it may, by what was predicted and by what was seen."""
        return max(self.predicted.expected_ns, self.seen_ns), max(self.predicted.ceiling_ns, self.seen_ns)

    def within(self, most_ns: float) -> Candidate:
        """The same where no more than this is the step's own."""
        told = self.predicted
        if not self.in_step or told.ceiling_ns <= most_ns:
            return self
        return replace(
            self, predicted=Saving(*(min(ns, most_ns) for ns in (told.low_ns, told.expected_ns, told.ceiling_ns)))
        )

    def too_little(self, step_ns: float) -> str:
        """Why it is not worth a look; empty where it is, or was asked for."""
        if self.named or self.hope[1] >= WORTH * step_ns:
            return ""
        gain = f"{100 * self.predicted.ceiling_ns / step_ns:.1f} % of the step"
        return f"rehearsed here, it brings at most {gain}" if self.rehearsed else f"at most {gain} is there to gain"


@dataclass(frozen=True)
class Plan:
    """One comparison in fresh processes: the candidate stack against the baseline stack."""

    baseline: Stack
    candidate: Stack
