"""A tuning as blocks: the gain and its interval, a waterfall of what was kept, and why the rest lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.told import money, proof, speedup_text
from gobrrr.report.told.blocks import Cell, Fact, Groups, Line, Sentence, Table, facts
from gobrrr.trial.receipt.receipt import Compiled, Figure, Headspace, Receipt, TrialResult, is_crowded, is_of
from gobrrr.trial.statistics.objective import BETTER, OBJECTIVES, adjective
from gobrrr.units import duration

FEW = 3
"""Remedies without time to be tried that the verdict names at most: all are in the notes."""
NOT_TIMED = "not timed"
"""Verdict on the speed of a trial that ended before its first measurement."""
STYLES = {
    NOT_TIMED: "magenta",
    **dict.fromkeys(BETTER, "bold green"), **dict.fromkeys((each.worse for each in OBJECTIVES.values()), "bold red"),
    "failed": "red", speedup_text.speed("inconclusive"): "magenta", speedup_text.speed("equivalent"): "dim",
}  # fmt: skip


def blocks(receipt: Receipt, view: View) -> Groups:
    """Verdict, waterfall, what was tried, costs, and what to type next; of a proof its own."""
    if receipt.verb == "prove":
        return proof.blocks(receipt, view)
    lost = raced(receipt, kept=False)
    rows = tuple((Cell(each.name), Cell(said := label(each), style=STYLES.get(said, "red")), Cell(why(each)))
                 for each in lost)  # fmt: skip
    heads = (("remedy", False), ("verdict", False), ("why", False))
    tried = [Table("Tried and not kept", heads, rows, folded=True, label="tried")] if rows else []
    head, *after = costs(receipt, view)
    return [
        [Sentence((verdict(receipt),))], _kept(receipt), head, tried, *after,
        facts([("next", [view.next_command])]),
    ]  # fmt: skip


def costs(receipt: Receipt, view: View) -> list[list[Fact]]:
    """Facts of a tuning: what a loader fix could give; start-up and memory; notes; when it is paid back."""
    paid = pay_back(receipt, view.seconds or receipt.seconds or 0.0, view.price_per_hour)
    return [
        facts([("headroom", headspace(receipt.headspace))]),
        facts([("start-up", speedup_text.start_up(receipt)), ("memory", [peaks(receipt)])]),
        facts([("notes", receipt.notes)]),
        facts([("pay-back", [paid])]),
    ]  # fmt: skip


def verdict(receipt: Receipt) -> Line:
    """Say the result in a sentence: the gain with its interval and what the guard says, or why there is none."""
    if receipt.verb == "prove":
        return proof.verdict(receipt)
    if not receipt.complete:
        head = f"Interrupted after {_count(len(receipt.trials), 'trial')}"
        return ((f"{head}: what was finished stands, --resume goes on.", "bold magenta"),)
    if not receipt.kept:
        return _nothing(receipt)
    if speedup_text.gain(receipt) is None:
        return (("Not proven:", "bold red"), " what was kept has no figure in this receipt.")
    if not receipt.guard.green:
        said = f" the numbers of the whole recipe are {numbers_said(receipt)}, so no speed-up is shown."
        return (("Not proven:", "bold red"), said)
    first, rest = speedup_text.head(receipt)
    said = f"{rest}; numbers {numbers_said(receipt)}."
    if is_crowded(receipt):
        return ((first, "bold magenta"), f"{said} {_crowded(receipt)}")
    return ((first, "bold green"), said)


def _crowded(receipt: Receipt) -> str:
    now, before = duration(receipt.step_ns or 0), duration(receipt.diagnosed_step_ns or 0)
    return (
        f"Measured on a busy machine: as written a step took {now} here and {before} in the diagnosis. What this "
        "brings without the others is unverified: tune again when they have ended."
    )


def _nothing(receipt: Receipt) -> Line:
    """Why nothing was kept: nothing was measured, something is left open, or nothing helps."""
    tried = len({name for t in receipt.trials for name in t.remedies})
    if not receipt.trials and receipt.measured:
        return (("Nothing kept:", "bold"), " no finding calls for a remedy that was there to be tried.")
    if not receipt.measured:
        return (("Nothing was measured,", "bold magenta"), " so nothing is known of any remedy: see below.")
    final = next((t for t in receipt.trials if t.purpose == "final"), None)
    if receipt.likely and (final is None or final.verdict in ("inconclusive", "failed")):
        names, why = " + ".join(receipt.likely), (final.reason if final else "") or "the minutes were spent"
        return (("Not confirmed:", "bold magenta"), f" {names} may be {_better(receipt)}; {why}.")
    open_ = f" There was no time to try and to prove {_listed(receipt.left)}." if receipt.left else ""
    if final is not None and speedup_text.gain(final) is not None:
        return (("Nothing kept:", "bold"), f" {final.name} looked {_better(receipt)} in the race and did not in "
                      f"fresh processes: {speedup_text.figures(final)}.{open_}")  # fmt: skip
    return (("Nothing kept:", "bold"), f" of {_count(tried, 'remedy', 'remedies')} tried none was shown "
                  f"to make this program {_better(receipt)} with its numbers intact.{open_}")  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    """'a, b, c and 2 more'."""
    shown, more = names[:FEW], len(names) - FEW
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def numbers_said(receipt: Receipt) -> str:
    """Say how the numbers of what was kept, or was to be, compare: 'match'."""
    return speedup_text.numbers(receipt.guard, receipt.kept or receipt.likely)


def _better(receipt: Receipt) -> str:
    found = OBJECTIVES.get(receipt.objective)
    return adjective(found.better) if found else "better"


class Level(NamedTuple):
    """Size of the figure that was to shrink (step time or peak) under one combination: its name, figure and words."""

    name: str
    figure: float
    said: str
    onto: tuple[str, ...] = ()


def levels(receipt: Receipt) -> list[Level]:
    """The step as written, or its peak, with what each of the kept ones made of it where it was shown, and with all of
    them, the last. Empty where nothing was shown."""
    whole, before, final = speedup_text.gain(receipt), speedup_text.as_written(receipt), speedup_text.final(receipt)
    if not receipt.kept or not before or whole is None or not receipt.guard.green:
        return []
    rows, parts = [Level("as written", before, "")], False
    for trial in raced(receipt, kept=True):
        if trial.purpose == "add" and trial.verdict in BETTER and (found := speedup_text.gain(trial)):
            onto = f" on top of {' + '.join(trial.onto)}" if trial.onto else ""
            after = before / found.median  # of the step above: in the race others ran beside it
            parts |= {*trial.remedies} != {*receipt.kept}
            rows.append(Level(trial.name, after, f"{speedup_text.figures(trial)}{onto}", trial.onto))
    said = compiled(final.compiled) if final and final.compiled else ""
    together = f"{speedup_text.figures(receipt)}, numbers {numbers_said(receipt)}"
    name = "kept, together" if parts else "in fresh processes" if len(rows) > 1 else " + ".join(receipt.kept)
    return [*rows, Level(name, before / whole.median, f"{together}; {said}" if said else together)]


def _kept(receipt: Receipt) -> list[Table]:
    rows, peak = levels(receipt), receipt.objective == "memory"
    cells = tuple((Cell(row.name), Cell(speedup_text.size(receipt, row.figure), row.figure),
                   Cell("", style="green", share=min(1.0, row.figure / rows[0].figure)), Cell(row.said))
                  for row in rows)  # fmt: skip
    heads = (("remedy", False), ("peak" if peak else "per step", True), ("", False), ("brought (95 %)", False))
    return [Table("", heads, cells, label="kept", lead=" + ".join(receipt.kept))] if rows else []


def raced(receipt: Receipt, kept: bool) -> list[TrialResult]:
    """Trials of the race and red guards whose remedies were all kept, or were not, and what was not confirmed. Where
    guard or confirmation judged a combination that had won its race, what they said stands for that."""
    found = [t for t in receipt.trials if t.remedies and not (kept and t.purpose == "final")]
    chosen = [t for t in found if is_of(t, receipt.kept, receipt.options) == kept]
    return chosen if kept else [t for t in chosen if t.purpose != "add" or _stands(t, receipt)]


def _stands(trial: TrialResult, receipt: Receipt) -> bool:
    """Say whether a trial of the race is the last word on its combination: no second look but one for which there was
    no time, and no guard or confirmation of what had won, with the settings that it had."""
    looks = [t for t in receipt.trials if t.purpose == "add" and (t.name, t.onto) == (trial.name, trial.onto)]
    stack = {*trial.remedies, *trial.onto}
    judged = any(t.purpose != "add" and {*t.remedies} == stack for t in receipt.trials)
    won = _is_won(trial) and is_of(trial, trial.remedies, receipt.options)
    seen = [t for t in looks if t.verdict != "inconclusive" or t.speedup is not None] or looks
    return seen[-1] is trial and not (won and judged)


def _is_won(trial: TrialResult) -> bool:
    """In the race alone."""
    return trial.purpose == "add" and trial.verdict in BETTER


def label(trial: TrialResult) -> str:
    """The verdict; where it is better at the price of its numbers, the guard's. In the race no numbers are checked."""
    if _is_red(trial):
        return speedup_text.numbers(trial.guard)
    never = trial.verdict == "inconclusive" and speedup_text.gain(trial) is None
    return NOT_TIMED if never else speedup_text.speed(trial.verdict)


def why(trial: TrialResult) -> str:
    """Why a trial was not kept, or what it brought, in half a sentence."""
    if _is_red(trial):
        first = f" from {trial.guard.first_module} on" if trial.guard.first_module else ""
        reason = f": {trial.guard.reasons[0]}" if trial.guard.reasons else ""
        return f"its numbers{first}{reason}" if first or reason else "its numbers could not be checked"
    if trial.verdict == "failed" or speedup_text.gain(trial) is None:
        return trial.reason or "could not be measured"
    if _is_won(trial) and not trial.guard.green:
        return "in the race alone: not confirmed, so no speed-up is shown"
    parts = [("in fresh processes " if trial.purpose == "final" else "") + speedup_text.figures(trial)]
    settled = trial.verdict not in ("inconclusive", "failed")  # of an open one nothing is known to be realised
    if settled and trial.predicted is not None and trial.realised_ns is not None and trial.predicted.ceiling_ns > 0:
        low, most = units.duration(trial.predicted.low_ns), units.duration(trial.predicted.ceiling_ns)
        parts.append(f"predicted {low} to {most}, realised {units.duration(trial.realised_ns)}")
    if trial.compiled is not None:
        parts.append(compiled(trial.compiled))
    if trial.reason:
        parts.append(trial.reason)
    return "; ".join(parts)


def _is_red(trial: TrialResult) -> bool:
    checked = trial.purpose != "add" or trial.guard.verdict != "unverified"
    return checked and trial.verdict in BETTER and not trial.guard.green


def compiled(found: Compiled) -> str:
    """'3 graphs, 2 graph breaks, recompiled 4 times while it was measured'."""
    parts = [_count(found.graphs, "graph")]
    parts += [_count(found.graph_breaks, "graph break")] if found.graph_breaks else []
    if found.recompiled:
        parts.append(f"recompiled {_count(found.recompiled, 'time')} while it was measured")
    return ", ".join(parts)


def peaks(receipt: Receipt) -> str:
    """Memory before and after, where it was not the objective: then that of the steps stands above."""
    final = next((t for t in receipt.trials if t.purpose == "final"), None)
    before, after = final.peak_bytes if final else (None, None)
    if not before or not after or receipt.objective == "memory":
        return ""
    return f"peak {units.size(before)} before, {units.size(after)} after"


def headspace(found: Headspace | None) -> list[str]:
    """The most that any loader fix could give, and how much of it what was kept does; or why that is not known."""
    if found is None:
        return []
    if found.compute_ns is None or found.saved_ns is None:
        return [f"what a loader fix can save was not measured: {found.reason}"]
    step, ready, saved = duration(found.step_ns), found.compute_ns, found.saved_ns
    most = f"a loader fix can save at most {_within(saved, duration)} of {step}"
    told = [f"with data ready the step takes {_within(ready, duration)}: {most}"]
    if found.reached is not None:
        told.append(f"what was kept saves {_within(found.reached, units.share)} of that")
    return told


def _within(found: Figure, said: Callable[[float], str]) -> str:
    return f"{said(found.value)} ({said(found.low)} to {said(found.high)})"


def pay_back(receipt: Receipt, spent: float, price_per_hour: float | None = None) -> str:
    """Say what the tuning took (`spent`, in seconds), after how much of the program's own time it is paid back, and the
    money per hour. Empty where no time was saved."""
    if receipt.speedup is None or not receipt.guard.green or receipt.speedup.median <= 1.0:
        return ""
    if receipt.objective == "memory" or spent <= 0:
        return ""
    part = 1 - 1 / receipt.speedup.median
    text = f"tuning took {spent / 60:.1f} min: pays for itself after {spent / part / 3600:.1f} h of training"
    if price_per_hour is not None:
        text += f"; {money.pay_back(part, spent, price_per_hour)}"
    return text


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
