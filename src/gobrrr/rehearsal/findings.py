"""Replace estimated savings by measured ones: the ops of a finding are timed here with and without its remedy.

A remedy that is no faster is not recommended; a finding without a faster remedy is dropped. See the package for the
words rehearsal, scene and played.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.run_folder.run import Start
from gobrrr.rehearsal import idiom_forms
from gobrrr.rehearsal.autocast import LOWERED
from gobrrr.rehearsal.idiom_forms import played_as
from gobrrr.rehearsal.outcome import outcome, promised, unlike
from gobrrr.rehearsal.perform import OF_A_FINDING, SECONDS, perform
from gobrrr.rehearsal.scenes import MAKERS, scene
from gobrrr.rehearsal.script import Scene, Script
from gobrrr.rehearsal.stage import HOPELESS
from gobrrr.remedies.edits import catalogue
from gobrrr.remedies.registry import edit_names, remedy
from gobrrr.rules import Skipped
from gobrrr.rules.idioms.table import idiom
from gobrrr.rules.model.evidence import worth_telling
from gobrrr.rules.model.finding import Finding, Rehearsed, Saving, off_the_step, severity, whole
from gobrrr.units import duration

LIGHTENING = ("bf16_autocast", "float16_autocast", "matmul_precision", "float32", "channels_last")
"""Remedies with which a device's kernels are shorter: what the host does to launch them stays about the same."""
HALVES = {"c10::BFloat16": "bf16", "c10::Half": "fp16"}
"""Names of the ceilings of half precisions, by the profiler's."""


class Rehearsal:
    """Plays what the findings promise, and the remedies `also`, in so many seconds and a few more for each of those."""

    def __init__(
        self, ledger: Ledger, machine: Machine, start: Start, interpreter: str, seconds: float = SECONDS,
        also: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._ledger, self._machine, self._start, self._interpreter = ledger, machine, start, interpreter
        self._also = [name for name in also if name in MAKERS]
        self._seconds = min(seconds, SECONDS + OF_A_FINDING * len(self._also))
        self.outcomes: tuple[Rehearsed, ...] = ()
        """All that was played, what lost as well."""

    def __call__(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[Skipped]]:
        """The findings as rehearsed here, and (code, why) of those whose every remedy would bring nothing, or that stay
        estimated since a rehearsal failed."""
        named = [played_as(f) for f in findings if f.saving.ceiling_ns > 0]
        wanted = remedies([*named, *((name,) for name in self._also)])
        scenes = [made for name, s in wanted.items() if (made := self._scene(name, s))]
        if not scenes:
            return list(findings), []
        lost = {each.remedy: found for each in scenes if (found := hopeless(each, self._ledger, self._machine))}
        scenes = [each for each in scenes if each.remedy not in lost]
        known, why_not = played(scenes, self._ledger, self._start, self._interpreter, self._seconds)
        known |= lost
        self.outcomes = tuple(known.values())
        kept, dropped = judged(findings, known, self._ledger, why_not)
        failed = [
            (f.code, why_not[name]) for f in kept for name in played_as(f) if f.saving.ceiling_ns and name in why_not
        ]
        return kept, [*dropped, *dict.fromkeys(failed)]

    def _scene(self, name: str, seconds: float) -> Scene | None:
        if idiom(name):
            return idiom_forms.scene(name, self._ledger, seconds)
        return scene(name, self._ledger, self._machine, seconds)


def remedies(findings: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Seconds for each remedy of the findings that call for them, in their order; the first call counts."""
    found: dict[str, float] = {}
    for names in findings:
        fresh = [name for name in names if (name in MAKERS or idiom(name)) and name not in found]
        found |= {name: OF_A_FINDING / len(fresh) for name in fresh}
    return found


def hopeless(scene: Scene, ledger: Ledger, machine: Machine) -> Rehearsed | None:
    """Return what a half precision costs whose products this CPU's ceilings make HOPELESS times slower than float32:
    one call of them may outlast a rehearsal. None for all else."""
    wide, cost = machine.flop_rate("fp32", ledger.threads) or 0.0, 0.0
    for part in scene.parts if ledger.device is None else ():
        then = part.then if part.then and part.then.get("name") in LOWERED else {}
        rates = [
            machine.flop_rate(HALVES[dtype], ledger.threads) for dtype in then.get("dtypes", ()) if dtype in HALVES
        ]
        slower = max((wide / rate for rate in rates if rate), default=0.0)
        cost += part.ns * (slower - 1) if slower >= HOPELESS else 0.0
    return Rehearsed(scene.remedy, Saving(0.0, 0.0, 0.0), cost, sum(part.ns for part in scene.parts)) if cost else None


def played(
    scenes: Sequence[Scene], ledger: Ledger, start: Start, interpreter: str, seconds: float = SECONDS
) -> tuple[dict[str, Rehearsed], dict[str, str]]:
    """Return the outcome of each remedy whose scene was played, and for each other one why it was not."""
    precision = ledger.facts.settings.matmul_precision or "highest"
    device = "cpu" if ledger.device is None else "cuda"
    script = Script(start.torch, device, ledger.threads, precision, tuple(scenes), seconds)
    results = perform(script, interpreter)
    found = {each.remedy: outcome(each, results[each.remedy], ledger.wall) for each in scenes}
    lost = {
        each.remedy: f"{each.remedy} could not be rehearsed: "
        f"{results[each.remedy].why or unlike(each, results[each.remedy]) or 'nothing was played'}"
        for each in scenes
        if found[each.remedy] is None
    }
    return {name: each for name, each in found.items() if each is not None}, lost


def judged(
    findings: Sequence[Finding], known: dict[str, Rehearsed], ledger: Ledger, failed: Container[str] = ()
) -> tuple[list[Finding], list[Skipped]]:
    """A finding takes the saving of its best remedy; without a winner, what was not rehearsed remains. Where a remedy
    before that one could not be played, it stays estimated: the next best is no measure of the best. Pure."""
    kept: list[Finding] = []
    dropped: list[Skipped] = []
    for each in findings:
        here = tuple(known[name] for name in played_as(each) if name in known)
        found = _judged(each, here, ledger, failed) if here and each.saving.ceiling_ns > 0 else each
        if found is None:
            dropped.append((each.code, f"rehearsed here: {', '.join(map(_loss, here))}"))
        else:
            kept.append(found)
    return kept, dropped


def _judged(finding: Finding, here: tuple[Rehearsed, ...], ledger: Ledger, failed: Container[str]) -> Finding | None:
    winners = [r for r in here if r.saving.expected_ns > 0]
    losers = {r.remedy for r in here} - {r.remedy for r in winners}
    names = played_as(finding)
    left = tuple(name for name in finding.remedies if name not in losers)
    best = max(winners, key=lambda r: _off_the_step(r, r.saving.expected_ns, ledger), default=None)
    refuted = names[0] in losers  # whose saving the rule has estimated; others may help
    if best is None:
        if not left and not finding.cost_bytes:
            return None
        saving = replace(finding.saving, low_ns=0.0, expected_ns=0.0 if refuted else finding.saving.expected_ns)
        return replace(
            finding, remedies=left, rehearsed=here, saving=saving, advice=_advice(finding, left[:1], here),
            severity="note" if refuted else finding.severity,
        )  # fmt: skip
    unknown = not refuted and any(name in failed for name in names[: names.index(best.remedy)])
    if unknown and _off_the_step(best, best.saving.expected_ns, ledger) < finding.saving.expected_ns:
        saving = replace(finding.saving, low_ns=min(finding.saving.low_ns, best.saving.low_ns))
        return replace(finding, remedies=left, rehearsed=here, saving=saving, advice=_advice(finding, left[:1], here))
    if not worth_telling(ledger, best.saving.ceiling_ns) and not finding.cost_bytes:
        return None
    saving = promised(best, ledger.wall)
    low, expected = (_off_the_step(best, ns, ledger) for ns in (saving.low_ns, saving.expected_ns))
    saving = replace(saving, low_ns=low, expected_ns=expected)
    level = severity(saving.expected_ns, whole(ledger, finding.rare))
    return replace(
        finding, saving=saving, severity=level, remedies=left, rehearsed=here, basis="rehearsed", confidence="measured",
        advice=_advice(finding, (best.remedy,), here),
    )  # fmt: skip


def _advice(finding: Finding, instead: tuple[str, ...], here: tuple[Rehearsed, ...]) -> str:
    """The rule's own is that of its first remedy: where this one loses it is that of the best that is left, if any."""
    lost = next((r for r in here if r.remedy in finding.remedies[:1] and r.saving.expected_ns <= 0), None)
    if lost is None or not instead:
        return finding.advice
    name = instead[0]
    best = catalogue.edit(name) if name in edit_names() else remedy(name)
    by_hand = getattr(best, "by_hand", "").partition("  #")[0]
    is_line = by_hand and "\n" not in by_hand and not by_hand.endswith(":")
    return f"{by_hand if is_line else f'{name} {best.title}'}; {_loss(lost)}, as rehearsed here."


def _off_the_step(of: Rehearsed, ns: float, ledger: Ledger) -> float:
    """Return the ns by which the step gets shorter where ops save `ns`: little for shorter kernels where the host is
    late anyway."""
    return off_the_step(ledger, ns) if ledger.device is not None and of.remedy in LIGHTENING else ns


def _loss(rehearsed: Rehearsed) -> str:
    how = "cost" if rehearsed.change_ns > 0 else "bring"
    return f"{rehearsed.remedy} would {how} {duration(abs(rehearsed.change_ns))} per step"
