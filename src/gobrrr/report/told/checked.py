"""The result of a check, for a person and for a program: the schema gobrrr.check/1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.forms.json import as_json
from gobrrr.report.told.blocks import Groups, Line, facts
from gobrrr.rules.model.finding import SEVERITIES, Finding
from gobrrr.rules.verdict.place import shown
from gobrrr.rules.verdict.regression import Growth, Held
from gobrrr.rules.verdict.report import Report

PASSED, FAILED, UNRELIABLE = 0, 1, 3
"""Exit codes of `gobrrr check`; 2 is for what was asked wrongly, as everywhere."""
VERDICTS = {PASSED: "passed", FAILED: "failed", UNRELIABLE: "unreliable"}


class Against(msgspec.Struct, frozen=True):
    """One baseline, by the name that it was given by, and what came of it."""

    baseline: str
    held: Held


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, with what it follows from: the findings that were asked for and are there, the baselines."""

    schema: str = "gobrrr.check/1"
    verdict: str
    exit_code: int
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    against: tuple[Against, ...] = ()
    recording: str = ""

    @property
    def regression(self) -> Held | None:
        """The one that is told: the first, where all baselines say so."""
        bad = [each.held for each in self.against if each.held.verdict == "regression"]
        return bad[0] if bad and len(bad) == len(self.against) else None


def checked(report: Report, wanted: Sequence[str], against: Sequence[Against]) -> Checked:
    """Return the result of the check. A regression must show against every baseline: a difference within the spread of
    two runs of the same program is none."""
    found = tuple(finding for finding in report.findings if is_wanted(finding, wanted))
    verdicts = {each.held.verdict for each in against}
    why: tuple[str, ...] = ()
    if report.verdict.bound == "unreliable":
        code, why = UNRELIABLE, (report.verdict.sentence,)
    elif verdicts == {"regression"} or found:
        code = FAILED
    elif "unreliable" in verdicts and "steady" not in verdicts:
        code = UNRELIABLE
    else:
        code = PASSED
    return Checked(verdict=VERDICTS[code], exit_code=code, why=why, findings=found, against=tuple(against),
                   recording=report.recording)  # fmt: skip


def is_wanted(finding: Finding, wanted: Sequence[str]) -> bool:
    """Say whether a finding has a code that was asked for, or is at least as severe."""
    levels = [SEVERITIES.index(word) for word in wanted if word in SEVERITIES]
    severe = finding.severity in SEVERITIES and any(SEVERITIES.index(finding.severity) >= level for level in levels)
    return severe or finding.code in wanted


def to_json(found: Checked, view: View) -> bytes:
    """Indented, ends with a newline; a ratio that is none is null."""
    return as_json(found, view, indent=2)


def blocks(found: Checked, view: View) -> Groups:
    """The verdict, each baseline with what grown since, the findings that were asked for."""
    style = {PASSED: "bold green", FAILED: "bold red"}.get(found.exit_code, "bold magenta")
    parts = ["a regression"] if found.regression and found.exit_code == FAILED else []
    codes = ", ".join(dict.fromkeys(finding.code for finding in found.findings))
    parts += [f"found {codes}, on which --fail-on fails"] if codes else []
    because = f" (exit code {found.exit_code}){': ' if parts else ''}{' and '.join(parts)}"
    against = [("against", [each.baseline, *_held(each.held, view.root)]) for each in found.against]
    listed = [_finding(finding, view.root) for finding in found.findings]
    return [facts([("check", [((found.verdict, style), because), *found.why]), *against, ("found", listed)])]


def _held(held: Held, root: str) -> Iterator[Line]:
    yield held.sentence
    if held.before_ns:
        yield ((f"{units.duration(held.before_ns)} then, {units.duration(held.now_ns)} now", "dim"),)
    for growth in held.grown:
        figures = f"+{units.duration(growth.delta_ns)}"
        was = f"  ({units.duration(growth.before_ns)} to {units.duration(growth.now_ns)})"
        yield (f"{figures:>9}", "bold"), f"  {said(growth, root)}", (was, "dim")
    yield from (((note, "dim"),) for note in held.notes)


def said(growth: Growth, root: str) -> str:
    """'bmm in backward, train.py:36 in Attention.forward'."""
    name = growth.what.removeprefix("aten::")
    phase = f" in {growth.phase}" if growth.phase and growth.phase != "data" else ""
    if growth.where is None:
        return f"{name}{phase}"
    function = f" in {growth.where.function}" if growth.where.function not in ("", "<module>") else ""
    return f"{name}{phase}, {shown(growth.where, root)}{function}"


def _finding(finding: Finding, root: str) -> Line:
    place = f"  {shown(finding.where[0], root)}" if finding.where else ""
    return (f"{finding.code} {finding.severity} {finding.name}", "bold"), (place, "cyan")
