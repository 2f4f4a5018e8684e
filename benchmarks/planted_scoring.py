"""Whether a report told the truth about a planted illness. Pure functions of reports (gobrrr.report/1) and figures."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

NEAR = 3
"""Lines by which a place may miss the mark."""
DOUBT = "BRR9"
"""Band 9 speaks of the measurement, not of the program."""
LOUD = ("warning", "critical")
BARS = {"named": 0.95, "placed": 0.90, "saving_inside": 0.90, "false_findings": 0.02}
WAITS = 0.10
"""Share of its time that a twin asks its loader for batches, by the clock outside, from which it is a true finding that
it waits: on a faster chip what computes is shorter, and the twin may be bound by its loader."""
WAITING = frozenset({"BRR401", "BRR402", "BRR403", "BRR405", "BRR408", "BRR410", "BRR411"})
GROWTH_WITHIN = 2.0
"""Factor within which the bytes of a memory finding must agree with the measured growth."""

Report = dict[str, Any]
Finding = dict[str, Any]


@dataclass(frozen=True)
class Sick:
    """How the report on the sick program fared."""

    top: str
    """Code of the first finding that is not a doubt; empty where there is none."""
    named: bool
    """The first finding is one of the accepted codes."""
    exact: bool
    """It is the expected code itself."""
    placed: bool
    """The first finding's place is within 3 lines of a mark."""
    line: int | None
    saving_inside: bool
    """low <= measured saving <= ceiling for the finding that names the illness, wherever it stands."""
    saving: tuple[float, float, float] | None
    """low, expected, ceiling of that finding, ns per step."""


def findings(report: Report | None) -> list[Finding]:
    """Findings in their order, doubts about the measurement left out."""
    return [f for f in (report or {}).get("findings", []) if not str(f["code"]).startswith(DOUBT)]


def judge_sick(
    report: Report | None,
    codes: Sequence[str],
    guilty_lines: Collection[int],
    *,
    saving_ns: float,
    growth_bytes: float | None = None,
) -> Sick:
    """Score the report of a sick program. `growth_bytes`: judge the bytes per step in place of the time."""
    told = findings(report)
    top = told[0] if told else None
    match = next((f for f in told if f["code"] in codes), None)
    line = place(top)
    return Sick(
        top=top["code"] if top else "",
        named=bool(top) and top["code"] in codes,
        exact=bool(top) and top["code"] == codes[0],
        placed=line is not None and any(abs(line - guilty) <= NEAR for guilty in guilty_lines),
        line=line,
        saving_inside=_bytes_agree(match, growth_bytes) if growth_bytes is not None else _inside(match, saving_ns),
        saving=_saving(match),
    )


def saving_here(report: Report | None, sick_ns: float, healthy_ns: float, statistic: str) -> float:
    """The saving in the run that made the promise, ns: that run's own step times the measured share that goes.

    A shared machine runs a tenth faster or slower from one run to the next; a promise is not about that.
    """
    saved = 1 - healthy_ns / sick_ns
    if report is None:
        return saved * sick_ns
    step = report["step"]
    own = step["plain_wall_ns"] + (step.get("outlier_ns", 0) if statistic == "mean" else 0)
    return saved * float(own)


def judge_healthy(report: Report | None, true_here: Collection[str] = ()) -> tuple[str, ...]:
    """Codes of false findings at warning or above. `true_here`: codes that this machine makes true of any program."""
    return tuple(f["code"] for f in findings(report) if f["severity"] in LOUD and f["code"] not in true_here)


def expected_error(entries: Iterable[dict[str, Any]]) -> float | None:
    """Median of what was expected off the true saving, as a share of that, of the entries whose illness takes time."""
    told = [
        (e["sick"]["saving"], e["saving_here_ns"]) for e in entries if not e["bytes_illness"] and e["sick"]["saving"]
    ]
    return statistics.median(abs(saving[1] - true) / true for saving, true in told) if told else None


def place(finding: Finding | None) -> int | None:
    """The line that a finding points at first, where it lies in the planted program."""
    where = (finding or {}).get("where") or []
    return where[0]["line"] if where and PurePath(where[0]["file"]).name == "sick.py" else None


def share(held: Iterable[bool]) -> float | None:
    """Part of the cases that hold; null where there are none."""
    cases = list(held)
    return sum(cases) / len(cases) if cases else None


def meets(bar: str, value: float | None) -> bool:
    """Whether a share reaches its bar; nothing measured reaches nothing."""
    if value is None:
        return False
    return value <= BARS[bar] if bar == "false_findings" else value >= BARS[bar]


def _saving(finding: Finding | None) -> tuple[float, float, float] | None:
    if finding is None:
        return None
    saving = finding["saving"]
    return saving["low_ns"], saving["expected_ns"], saving["ceiling_ns"]


def _inside(finding: Finding | None, saving_ns: float) -> bool:
    promised = _saving(finding)
    return promised is not None and promised[0] <= saving_ns <= promised[2]


def _bytes_agree(finding: Finding | None, growth_bytes: float) -> bool:
    told = (finding or {}).get("cost_bytes")
    return bool(told) and growth_bytes > 0 and 1 / GROWTH_WITHIN <= told / growth_bytes <= GROWTH_WITHIN
