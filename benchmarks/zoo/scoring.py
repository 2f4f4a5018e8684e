"""Whether a report of a program of the zoo is right. Pure functions of (case, row); a row is what running.py saw."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from benchmarks.zoo.case import Case
from gobrrr.rules import load

NEAR = 3
"""Lines by which a place may miss the mark."""
STEPS_WITHIN = 0.1
"""Share of the counted steps by which a report's may differ, and two beside: the first and last are seen half."""
OURS = ("BRR309",)
"""Number of threads: the bench is run with OMP_NUM_THREADS set where the machine is shared."""
PASSED = ("BRR9", *OURS)
"""Doubts, and what is of our own making, are no headline."""
BY_HAND = "by hand"
"""The expert's edit, among what was measured to bring something."""
MOST = 1.0005
"""A share is at most one, rounding aside."""
RATES = ("mfu", "speed_of_light", "bandwidth_share")
BARS = {"loop": 1.0, "headline": 0.9, "line": 0.85, "sane": 1.0, "same": 1.0, "whole": 1.0}
PERCENT = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?) %(?! of\s+the\s+median)")
"""Shares in the text; a spread of steps in per cent of their median may be anything."""

Row = dict[str, Any]


def score(case: Case, row: Row, here: Row | None = None) -> dict[str, bool | None]:
    """Every bar of one program; null where it does not apply. `here`: what remedies of it were measured to bring on the
    chip, shares of the step [low, high]."""
    report = row["report"]
    other = pays_instead(case, report, here or {})
    return {
        "loop": right_loop(case, row),
        "headline": other or true_headline(case, report),
        "line": None if other else useful_line(case, report),
        "sane": not absurd(row),
        "same": bool(row["same_output"]) and row["exit_codes"][0] == row["exit_codes"][1],
        "whole": report is not None and "Traceback" not in row["told"],
    }


def right_loop(case: Case, row: Row) -> bool:
    """The step is of the loop that an independent clock counted, and so are their number."""
    if row["report"] is None or row["clock"] is None:
        return False
    step, counted = row["report"]["step"], row["clock"]["steps"]
    return step.get("kind") == case.kind and abs(step["count"] - counted) <= 2 + STEPS_WITHIN * counted


def true_headline(case: Case, report: Row | None) -> bool | None:
    """The finding that the verdict names is the expert's; where it names none, for none is more than a note or the step
    is bound by something else, its bound is. Null where our own making is all."""
    if report is None:
        return False
    first = top(report, notes=False)
    if first is not None and first["bound"] == report["verdict"]["bound"]:
        return first["code"] in case.codes
    if any(code in report["verdict"]["sentence"] for code in OURS):
        return None
    return report["verdict"]["bound"] in case.bounds


def pays_instead(case: Case, report: Row | None, here: Row) -> bool:
    """A remedy of what the verdict names was measured on this chip to bring more than any of the expert's, or than his
    edit: bf16 costs where nothing multiplies it. Which lines help then no expert has said."""
    first = top(report, notes=False) if report else None
    if first is None or first["code"] in case.codes:
        return False
    his = [here[name][1] for name in (BY_HAND, *_remedies(*case.codes)) if name in here]
    ours = [here[name][0] for name in _remedies(first["code"]) if name in here]
    return bool(his and ours) and max(ours) > max(0.0, *his)


def _remedies(*codes: str) -> list[str]:
    rules = load()
    return [name for code in codes for name in rules[code].remedies]


def useful_line(case: Case, report: Row | None) -> bool | None:
    """The first finding, or the sentence where there is none, points within three lines of where an expert would."""
    if not case.lines:
        return None
    near = {line + shift for line in case.marked() for shift in range(-NEAR, NEAR + 1)}
    return report is not None and bool(near & places(case, report))


def places(case: Case, report: Row) -> set[int]:
    """Lines of the program at which the headline points."""
    told = {int(line) for line in re.findall(re.escape(case.script.name) + r":(\d+)", report["verdict"]["sentence"])}
    first = top(report)
    where = (first or {}).get("where") or []
    return told | {each["line"] for each in where if PurePath(each["file"]).name == case.script.name}


def top(report: Row, notes: bool = True) -> Row | None:
    """The first finding that is neither a doubt about the measurement nor of our own making; `notes` count or not."""
    told = (f for f in report["findings"] if notes or f["severity"] != "note")
    return next((f for f in told if not str(f["code"]).startswith(PASSED)), None)


def absurd(row: Row) -> list[str]:
    """Figures that cannot be: shares above one, savings above the step, negative times, rates above ceilings."""
    report = row["report"]
    text = row["told"] if report is None else row["told"] + report["verdict"]["sentence"]
    found = [
        f"{share} % in the text" for share in dict.fromkeys(PERCENT.findall(text)) if not 0 <= float(share) <= 100.05
    ]
    if report is None:
        return found
    found += [f"{each['account']} {each['share']:.3f}" for each in report["ledger"] if not 0 <= each["share"] <= MOST]
    excesses = [(each["code"], _excess(each, _whole(each, row))) for each in report["findings"]]
    found += [f"{code} {excess}" for code, excess in excesses if excess]
    roof = report.get("roofline") or {}
    return found + [f"{name} {value:.2f}" for name, value in roof.items() if name in RATES and (value or 0) > MOST]


def _whole(finding: Row, row: Row) -> float:
    """ns in which its time lies: the step beside which it is printed, or of what lies between the steps the loop as the
    clock has it."""
    step, clock = row["report"]["step"], row["clock"]
    if finding.get("between") and clock:
        return float(clock["loop_s"] * 1e9 / clock["steps"])
    return float(step["plain_wall_ns"] or step["wall_ns"])


def _excess(finding: Row, whole: float) -> str:
    """What is wrong with a saving: below nothing, or above the time in which it lies."""
    saving = finding["saving"]
    if min(saving.values()) < 0:
        return f"saves {min(saving.values())} ns"
    return f"saves {saving['ceiling_ns'] / whole:.2f} of the step" if saving["ceiling_ns"] > MOST * whole else ""
