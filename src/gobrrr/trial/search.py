"""What to try next, and when to stop: greedy addition, leave-one-out, one final confirmation. Pure; knows no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gobrrr.rules.model import Saving

WORTH = 0.01
"""Share of the step that must be left to gain for another trial; half the band within which arms are equivalent."""
NOTHING = Saving()
FAST, GREEN = "faster", ("exact", "equivalent", "bounded")


@dataclass(frozen=True)
class Candidate:
    """A remedy that applies, and what the ledger allows it at most, ns per step."""

    name: str
    predicted: Saving = NOTHING
    conflicts: frozenset[str] = frozenset()
    named: bool = False
    """The user asked for it: it is tried whatever the ledger allows."""
    choice: int = 0
    """Its place among the remedies that the findings name: of two for the same cause the apter one comes first."""


@dataclass(frozen=True)
class Plan:
    """One trial to make: the candidate stack against the baseline stack."""

    purpose: str
    """add, leave-one-out or final."""
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    remedy: str = ""
    """The one that differs; empty for the final trial."""


@dataclass
class Search:
    """Drives the trials: `next()` says what to measure, `feed()` takes what came of it.

    Order: the largest expected saving first. A remedy is kept where it is faster on top of those kept so far and its
    guard is green. Then each kept one is left out in turn, those that no longer pay are dropped, and what is left is
    measured once more, on fresh blocks, against the untouched program.
    """

    candidates: Sequence[Candidate]
    step_ns: float
    min_gain: float = WORTH
    kept: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Remedies that were not tried, and why."""
    _tried: set[str] = field(default_factory=set)
    _left_out: set[str] = field(default_factory=set)
    _final: bool = False
    _stopped: str = ""
    _left_ns: float = 0.0

    def __post_init__(self) -> None:
        self._by_name: Mapping[str, Candidate] = {c.name: c for c in self.candidates}
        self._left_ns = self.step_ns

    def stop(self, reason: str) -> None:
        """No further additions (the budget is spent, say); what is kept is still confirmed."""
        self._stopped = self._stopped or reason

    def next(self) -> Plan | None:
        """The next trial; None where the search is over."""
        candidate = self._addition()
        if candidate is not None:
            return Plan("add", tuple(self.kept), (*self.kept, candidate.name), candidate.name)
        if len(self.kept) > 1:
            for name in self.kept:
                if name not in self._left_out:
                    return Plan("leave-one-out", tuple(k for k in self.kept if k != name), tuple(self.kept), name)
        if self.kept and not self._final:
            return Plan("final", (), tuple(self.kept))
        return None

    def feed(self, plan: Plan, verdict: str, guard: str, step_ns: float | None = None) -> None:
        """What came of a trial: its verdict, the guard's, and the candidate stack's step where it was measured."""
        good = verdict == FAST and guard in GREEN
        if plan.purpose == "add":
            self._tried.add(plan.remedy)
            if good:
                self.kept.append(plan.remedy)
                self._left_ns = step_ns or self._left_ns
        elif plan.purpose == "leave-one-out":
            self._left_out.add(plan.remedy)
            # What is merely not proven to pay alone stays; what is proven to be of no use goes.
            if verdict in ("slower", "equivalent"):
                self.kept.remove(plan.remedy)
                self._left_out.clear()  # the others stand on another stack now
                self._left_out.update(self._settled())
        else:
            self._final = True

    def _settled(self) -> Iterable[str]:
        """With one remedy left there is nothing to leave out that the final trial does not measure."""
        return self.kept if len(self.kept) < 2 else ()

    def _addition(self) -> Candidate | None:
        open_ones = [c for c in self._ranked() if c.name not in self._tried and c.name not in self.skipped]
        for candidate in open_ones:
            reason = self._why_not(candidate)
            if not reason:
                return candidate
            self.skipped[candidate.name] = reason
        return None

    def _why_not(self, candidate: Candidate) -> str:
        if self._stopped:
            return self._stopped
        clash = next((name for name in self.kept if self._clash(candidate, name)), "")
        if clash:
            return f"it conflicts with {clash}, which was kept"
        if not candidate.named and candidate.predicted.ceiling_ns < self.min_gain * self._left_ns:
            return f"at most {100 * candidate.predicted.ceiling_ns / self.step_ns:.1f} % of the step is there to gain"
        return ""

    def _clash(self, candidate: Candidate, other: str) -> bool:
        known = self._by_name.get(other)
        return other in candidate.conflicts or (known is not None and candidate.name in known.conflicts)

    def _ranked(self) -> list[Candidate]:
        return sorted(
            self.candidates, key=lambda c: (-c.predicted.expected_ns, c.choice, -c.predicted.ceiling_ns, c.name)
        )
