"""Verdicts as people read them: on the speed of a trial, and on its numbers. JSON keeps its own words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gobrrr.system.escape import plain

SPEED = {"equivalent": "no difference", "inconclusive": "no clear difference"}
NUMBERS = {"exact": "match", "equivalent": "match"}
ROUNDING = {
    "bf16_autocast": "bf16 rounding",
    "matmul_precision": "bf16 rounding",
    "float16_autocast": "float16 rounding",
}
"""Remedies that lower the precision, and what the guard then allows; tests/report holds it to the remedies."""
ORDER = ("data:", "random draws:", "epochs:")
"""Beginnings of the guard's reasons where samples or draws come otherwise: then losses are held against other seeds."""


class Judged(Protocol):
    """Verdict of the guard, which is a room of its own: guard.model.verdict.Guarded."""

    @property
    def verdict(self) -> str: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...


def speed(verdict: str) -> str:
    """'no clear difference'."""
    return plain(SPEED.get(verdict, verdict))


def numbers(found: Judged, remedies: Iterable[str] = ()) -> str:
    """'match' or 'within bf16 rounding', to stand behind 'numbers'. `remedies`: those that it is said of."""
    if found.verdict != "bounded":
        return plain(NUMBERS.get(found.verdict, found.verdict))
    allowed = [ROUNDING[name] for name in remedies if name in ROUNDING]
    allowed += ["seed variation"] if any(reason.startswith(ORDER) for reason in found.reasons) else []
    return f"within {' and '.join(dict.fromkeys(allowed)) or 'rounding'}"
