"""The guard's nouns: a check, and the verdict that all checks together give."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gobrrr.guard.model.gate import Gated

VERDICTS = ("exact", "equivalent", "bounded", "unverified", "changed", "wrong")
"""From best to worst; the worst check is the verdict.

exact: bitwise equal in all that was looked at.
equivalent: no further from float64 than twice the baseline is. bounded: further, but within what
its precision explains, and the losses stay among the baseline's own seeds. unverified: something could not be checked.
changed: another computation, though a sane one. wrong: a part is missing, of another scale or direction, or not finite.
"""
GREEN, RED = VERDICTS[:3], VERDICTS[4:]


class Check(msgspec.Struct, frozen=True):
    """Verdict of one check, and in half a sentence why."""

    name: str
    verdict: str
    reason: str = ""
    module: str = ""
    """Where it went wrong first, if it did."""
    kind: str = ""
    """Word for what changed in a timed run (verdicts/timed.py): of --accept, say."""


class Guarded(msgspec.Struct, frozen=True):
    """Verdict of the numerics guard: one of VERDICTS, and why."""

    verdict: str = "unverified"
    reasons: tuple[str, ...] = ()
    first_module: str = ""
    """The first module to diverge, where one did."""
    evidence: dict[str, float | None] = {}
    steps: int = 0
    """Steps from the start that timed runs of an edit were compared in; 0 where they keep no account."""
    gates: tuple[Gated, ...] = ()
    """The user's own measures, which answered in place of the numbers."""

    @property
    def green(self) -> bool:
        """Whether a speed-up may be shown beside it."""
        return self.verdict in GREEN

    @property
    def red(self) -> bool:
        """Whether its numbers are known to be others."""
        return self.verdict in RED

    def __bool__(self) -> bool:
        """So that a test can say `assert guard.compare(...)`."""
        return self.green


def worst(checks: Iterable[Check], evidence: dict[str, float | None]) -> Guarded:
    """The worst check's verdict, with the reasons of all that are as bad. No check at all is unverified."""
    found = list(checks)
    if not found:
        return Guarded(reasons=("nothing was observed",))
    verdict = max((c.verdict for c in found), key=VERDICTS.index)
    telling = [c for c in found if c.verdict == verdict and c.reason]
    module = next((c.module for c in found if c.module and c.verdict not in GREEN), "")
    return Guarded(verdict, tuple(f"{c.name}: {c.reason}" for c in telling), module, evidence)
