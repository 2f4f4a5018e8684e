"""Every rule of every band, and the one function that puts them to a ledger."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.idioms.table import CODE
from gobrrr.rules.model.evidence import worth_telling
from gobrrr.rules.model.finding import REGISTRY, Finding, Rule
from gobrrr.rules.model.views import device_view
from gobrrr.rules.validity.sanity import against
from gobrrr.rules.verdict.sentence import CONTENTION
from gobrrr.rules.verdict.trainer_arguments import with_argument

NO_BANDS = ("model", "verdict")
"""Folders that hold no rule."""
Skipped = tuple[str, str]
"""(code, why it could not be judged)."""
BLAMED = ("BRR311", "BRR312")
"""Codes that are told of a line because nothing else is known of it."""
SAYS = ("BRR108", "BRR113", "BRR117", "BRR704", "BRR705")
"""Codes, beside those of the host and of synchronisation, that say why a line should not be there."""
SAME = "BRR114"
"""Code of work that need not be there at all: no way of doing it faster matters then."""
GENERAL = ("BRR105", "BRR202", "BRR301", "BRR302", "BRR304", "BRR312")
"""Codes whose general advice says less of a line than an idiom's."""
TWICE = "BRR115"
"""Code of results that a step computes again: an idiom around the line says why."""
HOW = ("BRR504",)
"""Codes that say how the time of any line passes: where one has no part in training, that says more."""


def load() -> dict[str, Rule]:
    """Return all rules by code, in order of code: those that files in a band's folder declare."""
    for file in sorted(file for folder in __path__ for file in Path(folder).glob("*/[a-z]*.py")):
        if file.parent.name in NO_BANDS:
            continue
        import_module(f"{__name__}.{file.parent.name}.{file.stem}")
    return dict(sorted(REGISTRY.items()))


def judge(
    ledger: Ledger, machine: Machine, *, portability: bool = False, strict: bool = False,
    rehearsed: Callable[[list[Finding]], tuple[list[Finding], list[Skipped]]] | None = None,
) -> tuple[list[Finding], list[Skipped]]:  # fmt: skip
    """Put every rule to `ledger`: (findings, largest saving first; (code, why) of rules that could not judge).

    Rules of another device's costs are asked under `portability` only. A rule that raises is a defect: with `strict`
    its exception passes, else it is a skipped rule, so that one defect never costs a person the whole report.
    `rehearsed` gives the findings with the savings that were measured here; the same holds for it, and whatever looks
    at all findings sees those. Where threads wait for cores nothing is rehearsed, and nothing promised at least.
    Findings may explain the same nanoseconds; each saving is true alone, and they are never added.
    """
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    there = device_view(ledger, machine)
    for code, rule in load().items():
        if rule.portability and not portability:
            continue
        if lacking := sorted(rule.needs - ledger.signals):
            skipped.append((code, f"needs {', '.join(lacking)}, which this recording lacks"))
            continue
        try:
            findings += ask(rule, ledger, machine, there)
        except Exception as error:
            if strict:
                raise
            skipped.append((code, _defect(error)))
    contended = any(f.code == CONTENTION and f.severity != "note" for f in findings)
    if contended:  # a step that waits for cores is not what comes back: what is played beside it had wrong signs
        findings = [replace(f, saving=replace(f.saving, low_ns=0.0)) for f in findings]
    if rehearsed is not None and not contended:
        try:
            findings, lost = rehearsed(findings)
            skipped += lost
        except Exception as error:
            if strict:
                raise
            skipped.append(("rehearsal", _defect(error)))
    findings = [with_argument(finding, ledger.facts.settings) for finding in unknown_only(findings)]
    return sorted([*findings, *against(ledger, findings)], key=_rank), skipped


def _defect(error: Exception) -> str:
    return f"failed with {type(error).__name__}: a defect of gobrrr, not of the program"


def unknown_only(findings: list[Finding]) -> list[Finding]:
    """Without lines that are blamed for being there where another rule says what is wrong at or below them, and without
    how the time of such a line passes; without general advice where an idiom is known to be slow, and without faster
    ways of work that need not be done at all."""
    idioms = [f for f in findings if f.code == CODE]
    findings = [f for f in findings if f.code not in GENERAL or not _outdone(f, idioms)]
    findings = [f for f in findings if f.code != TWICE or not _outdone(f, idioms, upwards=True)]
    same = [f for f in findings if f.code == SAME]
    if any(f.code == "BRR108" for f in findings):  # it knows the module
        findings = [f for f in findings if f.code not in ("BRR115", "BRR117")]
    ways = ("BRR1", "BRR2", "BRR3")
    findings = [f for f in findings if f.code in (SAME, CODE) or f.code[:4] not in ways or not _outdone(f, same)]
    known = [f for f in findings if f.code in SAYS or (f.code[:4] in ("BRR3", "BRR5") and f.code not in BLAMED + HOW)]
    kept = [f for f in findings if f.code not in BLAMED or not _outdone(f, known)]
    blamed = [f for f in kept if f.code in BLAMED]
    return [f for f in kept if f.code not in HOW or not _outdone(f, blamed, upwards=True)]


def _outdone(found: Finding, others: list[Finding], upwards: bool = False) -> bool:
    """By another that expects half as much at or below its line; `upwards`: at or above it."""
    return any(
        other.saving.expected_ns >= 0.5 * found.saving.expected_ns > 0
        and (_at_or_below(found, other) if upwards else _at_or_below(other, found))
        for other in others
    )


def _at_or_below(other: Finding, found: Finding) -> bool:
    place = found.where[:1]
    return any(span.place == at.place for at in place for span in other.where)


def ask(rule: Rule, ledger: Ledger, machine: Machine, there: tuple[Ledger, Machine] | None) -> list[Finding]:
    """Return the findings of one rule; `there` is the device's view, where there is one."""
    if not rule.on_device or there is None:
        return list(rule.check(ledger, machine))
    # A rule asks of kernels; of a device that works little of the step, little of the step comes back. One that
    # promises bytes alone has said that they are worth it.
    told = ((found, found.saving.expected_ns) for found in rule.check(*there))
    return [f for f, expected in told if worth_telling(ledger, expected) or (f.cost_bytes and not expected)]


def _rank(finding: Finding) -> tuple[float, int, str, str, int]:
    place = finding.where[0] if finding.where else None
    known = place.place if place else ("", 0)
    return (-finding.saving.expected_ns, -(finding.cost_bytes or 0), finding.code, *known)
