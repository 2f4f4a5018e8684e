"""A proof as blocks: a line for each edit, faster or not and with which numbers, and what to do next."""

from __future__ import annotations

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.told import gates, speedup_text
from gobrrr.report.told.blocks import Cell, Fact, Groups, Line, Sentence, Table, facts
from gobrrr.trial.receipt.receipt import Receipt, TrialResult
from gobrrr.trial.statistics.objective import BETTER

ACCEPTED, GATE = "accepted: ", "gate: "
"""Stand before what the user accepts by name in the guard's reasons, and before why a gate cannot be read."""


def blocks(receipt: Receipt, view: View) -> Groups:
    """Verdict, a row for each edit of several, the reasons, and what to type next."""
    rows = tuple(
        (Cell(trial.name), Cell(_short(trial), style=style(trial)), Cell(_numbers(trial))) for trial in receipt.trials
    )
    heads = (("edit", False), ("verdict", False), ("numbers", False))
    several = [Table("", heads, rows, label="edits")] if len(rows) > 1 and not receipt.points else []
    table = gates.points(receipt)
    searched: Groups = [[table] if table else [], facts([("search", gates.left_out(receipt))])]
    return [
        [Sentence((verdict(receipt),))],
        several,
        *searched,
        _facts(receipt),
        facts([("next", [view.next_command])]),
    ]


def verdict(receipt: Receipt) -> Line:
    """Say the result in a sentence of at most 25 words."""
    if not receipt.complete:
        return (("Interrupted:", "bold magenta"), " what was finished stands.")
    if not receipt.trials and receipt.points:
        return (
            ("Nothing kept:", "bold magenta"),
            f" of {len(receipt.points) - 1} points none is faster within its gate.",
        )
    if not receipt.trials:
        return (("Nothing was measured.", "bold magenta"),)
    kept = [each for each in receipt.trials if each.remedies == receipt.kept]
    red = [each for each in receipt.trials if each.guard.red]
    fastest = max(reversed(receipt.trials), key=speedup_text.lowest_gain)
    trial = [*kept, *(receipt.trials if receipt.points else red), fastest][0]
    name = f"{trial.name}: " if len(receipt.trials) > 1 or receipt.points else ""
    spent, word = receipt.seconds or 0.0, "proven" if receipt.kept else "judged"
    took = f"{word} in {spent / 60:.1f} min" if spent >= 60 else f"{word} in {spent:.0f} s"
    return ((f"{name}{_short(trial)}", f"bold {style(trial)}"), f"; {_numbers(trial)}; {took}.")


def style(trial: TrialResult) -> str:
    """The colour of a verdict."""
    if trial.guard.red or trial.verdict == "failed":
        return "red"
    return "green" if trial.verdict in BETTER and trial.guard.green else "magenta"


def _short(trial: TrialResult) -> str:
    found = speedup_text.gain(trial)
    if trial.guard.red:
        return "Refused"
    if trial.verdict == "failed":
        return "Not judged" if trial.reason.startswith(GATE) else "Does not run"
    if found is None or trial.verdict == "inconclusive":
        return f"Not settled{f', {_figure(trial)}' if found is not None else ''}"
    if trial.verdict in BETTER:
        return _figure(trial)
    return f"Not {'faster' if trial.energy is None else 'less energy'}, {_figure(trial)}"


def _figure(trial: TrialResult) -> str:
    if trial.energy is not None:
        return speedup_text.energy(trial.energy, trial.speedup)
    assert trial.speedup is not None
    return f"{trial.speedup.median:.2f} times as fast ({trial.speedup.low:.2f} to {trial.speedup.high:.2f})"


def _numbers(trial: TrialResult) -> str:
    if trial.verdict == "failed":
        return trial.reason
    if trial.guard.gates:
        done = [] if trial.guard.green else [each for each in trial.guard.reasons if each.startswith("timed")]
        return "; ".join([*map(gates.sentence, trial.guard.gates), *done[:1]])
    reason = f": {trial.guard.reasons[0]}" if trial.guard.reasons and not trial.guard.green else ""
    accepted = [each.partition(ACCEPTED)[2] for each in trial.guard.reasons if ACCEPTED in each]
    first = f" in the first {trial.guard.steps:,} steps" if trial.guard.steps and trial.guard.green else ""
    said = f"numbers {speedup_text.numbers(trial.guard, trial.remedies)}{first}{reason}"
    return f"{said}, accepted: {accepted[0]}" if accepted and trial.guard.green else said


def _facts(receipt: Receipt) -> list[Fact]:
    told = []
    for trial in receipt.trials:
        more = list(trial.guard.reasons[1:]) if not trial.guard.green else []
        if trial.guard.gates:
            more = [each for each in trial.guard.reasons if ACCEPTED not in each]
            more = [*map(gates.runs, trial.guard.gates), *more]
        more += [trial.reason] if trial.reason and trial.verdict != "failed" else []
        told += [f"{trial.name}: {each}" for each in more]
    step = [f"{units.duration(receipt.step_ns)} as the program is"] if receipt.step_ns else []
    return facts([("step", step), ("start", speedup_text.start_up(receipt)), ("notes", [*told, *receipt.notes])])
