"""A gate, told: how far the user's own measure moved with an edit, what was allowed, and every value that says so."""

from __future__ import annotations

import msgspec

ACCEPTED, UNDECIDED, REFUSED = "accepted", "undecided", "refused"
VERDICT_OF = {ACCEPTED: "bounded", UNDECIDED: "unverified", REFUSED: "changed"}
"""The guard's verdict by a gate's."""


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """One gate after its runs. Changes and allowance are in `unit`, minus where the measure fell."""

    rule: str
    """As the user wrote it: 'accuracy >= -0.5%'."""
    name: str
    measure: str = ""
    """Where its value is read; empty: behind its name in what is printed."""
    unit: str = ""
    """% of the program's own value, points (of a value in %), or empty: the value's own."""
    seeds: tuple[int, ...] = ()
    baseline: tuple[float, ...] = ()
    """Values of the program as it is, one for each seed."""
    candidate: tuple[float, ...] = ()
    change: float = 0.0
    low: float | None = None
    """One-sided bounds of the change, each at 95 % over all looks; null where no interval is known yet."""
    high: float | None = None
    allowed: float = 0.0
    verdict: str = UNDECIDED
    exact: bool = False
    """Seeds change nothing in the program: one pair decides."""
    runs_needed: int | None = None
    """For undecided: runs more that would settle it if they scatter as these do."""
    updates: int = 0
    """Updates of an optimizer in each run, before it measures: nothing is known of more."""

    @property
    def worse(self) -> float:
        """Return the change as a loss: above 0 where the measure got worse."""
        return self.change if "<=" in self.rule else -self.change
