"""The page of a tuning: the gain step by step, every pair that was measured, what lost and why, and the guard."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from gobrrr.report.forms.formats import View
from gobrrr.report.html import charts
from gobrrr.report.html.curve_chart import Axis, CurvePoint, curve
from gobrrr.report.html.pair_chart import PairRow, pairs
from gobrrr.report.told import gates, speedup_text, tuning
from gobrrr.report.told.blocks import Cell, Fact, Table, facts, plainly, time_cell
from gobrrr.report.told.report import versions
from gobrrr.system.escape import cleaned_command
from gobrrr.trial.receipt.receipt import Receipt, Samples, TrialResult, is_crowded, is_of
from gobrrr.trial.statistics.objective import BETTER
from gobrrr.units import size

APART = 0.02
"""Share of the figure as written above which what remedies bring together, and not each by itself, has its own row."""
AXES = {"time": "times as fast", "throughput": "times as many samples per second", "memory": "times as small a peak",
        "energy": "energy as written over that with it"}  # fmt: skip
FULL_ERROR = "error against float64, times the error of the program as written"


def parts(receipt: Receipt, view: View) -> dict[str, Any]:
    """Everything that the template needs."""
    lost = [(each.name, tuning.label(each), tuning.why(each)) for each in tuning.raced(receipt, kept=False)]
    rows = [trial for trial in reversed(receipt.trials) if trial.remedies]
    return {
        "receipt": receipt, "sentence": plainly(tuning.verdict(receipt)),
        "sure": bool(tuning.levels(receipt)) and not is_crowded(receipt),
        "facts": _facts(receipt, view), "waterfall": _waterfall(receipt), "lost": lost,
        "pairs": pairs([_row(i, trial, receipt) for i, trial in enumerate(rows, 1)], AXES.get(receipt.objective, "")),
        "trials": _trials(rows, receipt), "evidence": _evidence(receipt), "about": _about(receipt),
        "next_command": view.next_command, "points": gates.points(receipt), "left_out": gates.left_out(receipt),
        "pareto": _pareto(receipt),
    }  # fmt: skip


def _pareto(receipt: Receipt) -> Markup:
    """Speed against bytes: what nothing beats is joined, what its gate allows stands apart."""
    known = sorted((each for each in receipt.points if each.speed and each.mark not in ("refused", "does not run")),
                   key=lambda each: (not each.best, each.bytes))  # fmt: skip
    drawn = [CurvePoint(each.name, each.bytes, each.speed or 0.0, "kept" if each.mark == "kept" else "",
                        is_apart=not each.best) for each in known]  # fmt: skip
    return curve(drawn, Axis("bytes of the weights", size, is_binary=True), Axis("times as fast", "{:.3g}".format))


def _facts(receipt: Receipt, view: View) -> list[Fact]:
    before = speedup_text.as_written(receipt) or receipt.step_ns
    told = [
        ("as written", [speedup_text.size(receipt, before)] if before else []),
        ("objective", [] if receipt.objective == "time" else [receipt.objective]),
        ("kept", [" + ".join(receipt.kept)] if receipt.kept else []),
    ]  # fmt: skip
    return [*facts(told), *(fact for group in tuning.costs(receipt, view) for fact in group)]


def _waterfall(receipt: Receipt) -> list[dict[str, Any]]:
    """From the figure as written to that with all that was kept. Ratios multiply: each was measured against the program
    without it, so what is left at the end is what they bring together."""
    rows = tuning.levels(receipt)
    if not rows:
        return []
    first, *steps, last = rows
    before, level = first.figure, first.figure
    found = [_bar(first, 0.0, 1.0, "phase0", speedup_text.size(receipt, before))]
    by_name = {row.name: row for row in sorted(steps, key=lambda row: len(row.onto))}
    for row in by_name.values():
        after = level * row.figure / before
        found.append(_drop(receipt, row, level, after, before))
        level = after
    if by_name and abs(level - last.figure) > APART * before:
        more = "less" if last.figure > level else "more"
        rest = ("together", "what each brings by itself") if len(by_name) > 1 else ("confirmed", "it did in the race")
        row = tuning.Level(rest[0], last.figure, f"{more} than {rest[1]}")
        found.append(_drop(receipt, row, level, last.figure, before))
    return [*found, _bar(last, 0.0, last.figure / before, "phase0", speedup_text.size(receipt, last.figure))]


def _drop(receipt: Receipt, row: tuning.Level, before: float, after: float, whole: float) -> dict[str, Any]:
    saved = before - after
    said = f"{'-' if saved >= 0 else '+'}{speedup_text.size(receipt, abs(saved))}"
    kind = "work" if saved >= 0 else "idle"
    return _bar(row, min(before, after) / whole, max(before, after) / whole, kind, said)


def _bar(row: tuning.Level, start: float, end: float, kind: str, figure: str) -> dict[str, Any]:
    label = f"{row.name}: {figure}"
    return {"name": row.name, "figure": figure, "said": row.said, "bar": charts.span_bar(start, end, kind, label)}


def is_told(trial: TrialResult, receipt: Receipt) -> bool:
    """Say whether a trial's figures may be shown: a gain only beside a green guard, its own or of all that was kept."""
    if speedup_text.gain(trial) is None or trial.verdict == "failed":
        return False
    kept = is_of(trial, receipt.kept, receipt.options) and receipt.guard.green
    return trial.verdict not in BETTER or trial.guard.green or kept


def ratios(samples: Samples, objective: str = "time") -> list[float]:
    """Baseline over candidate of each A B B A or B A A B, in the order in which they ran: linear drift falls out."""
    costs = [_cost(samples, at, objective) for at in range(min(len(samples.arm), len(samples.steps), len(samples.ns)))]
    found, at = [], 0
    while at + 4 <= len(costs):
        four = list(zip(samples.arm[at : at + 4], costs[at : at + 4], strict=True))
        first, second, third, last = samples.arm[at : at + 4]
        if first == last != second == third and all(cost > 0 for _, cost in four):
            found.append(math.exp(sum((0.5 if arm == 0 else -0.5) * math.log(cost) for arm, cost in four)))
            at += 4
        else:  # a sweep that was cut short
            at += 1
    return found


def _cost(samples: Samples, at: int, objective: str) -> float:
    if objective == "memory":
        return float((samples.peak_bytes[at] if at < len(samples.peak_bytes) else None) or 0)
    if objective == "energy":
        return ((samples.joules[at] if at < len(samples.joules) else None) or 0.0) / (samples.steps[at] or 1)
    counted = samples.samples[at] if objective == "throughput" and at < len(samples.samples) else None
    return samples.ns[at] / (counted or samples.steps[at] or 1)


def _row(number: int, trial: TrialResult, receipt: Receipt) -> PairRow:
    name = "all together" if trial.purpose == "final" and len(trial.remedies) > 1 else trial.name
    found = speedup_text.gain(trial)
    if not is_told(trial, receipt) or found is None:
        unsure = trial.verdict in BETTER and tuning.label(trial) == trial.verdict
        return PairRow(number, name, (), None, f"{tuning.label(trial)}{', not confirmed' if unsure else ''}")
    interval = (found.low, found.median, found.high)
    return PairRow(number, name, tuple(ratios(trial.samples, trial.objective)), interval, speedup_text.figures(trial))


def _trials(rows: list[TrialResult], receipt: Receipt) -> Table | None:
    """All that was measured, numbered as in the chart."""
    heads = (("#", True), ("remedies", False), ("on top of", False), ("of", False), ("verdict", False),
             ("numbers", False), ("pairs", True), ("brought", True), ("predicted", True), ("realised", True),
             ("took", True))  # fmt: skip
    found = tuple(_trial(i, trial, receipt) for i, trial in enumerate(rows, 1))
    return Table("Every trial", heads, found) if found else None


PURPOSES = {"add": "the race", "guard": "the guard", "final": "the confirmation"}


def _trial(number: int, trial: TrialResult, receipt: Receipt) -> tuple[Cell, ...]:
    found, told = speedup_text.gain(trial), is_told(trial, receipt)
    predicted = trial.predicted.expected_ns if trial.predicted and trial.predicted.ceiling_ns > 0 else None
    realised = trial.realised_ns if told and trial.verdict not in ("inconclusive", "failed") else None
    num = len(ratios(trial.samples, trial.objective))
    was_checked = trial.purpose != "add" or trial.guard.verdict != "unverified"
    checked = speedup_text.numbers(trial.guard, trial.remedies) if was_checked else ""
    return (
        Cell(str(number), number), Cell(trial.name), Cell(" + ".join(trial.onto)),
        Cell(PURPOSES.get(trial.purpose, trial.purpose)), Cell(speedup_text.speed(trial.verdict)),
        Cell(checked), Cell(str(num), num),
        Cell(speedup_text.figures(trial), found.median) if told and found else Cell("", 0.0), time_cell(predicted),
        time_cell(realised), Cell(f"{trial.seconds:.0f} s", trial.seconds),
    )  # fmt: skip


def _evidence(receipt: Receipt) -> dict[str, Any]:
    """Return what the guard compared, its verdict and its reasons."""
    figures = []
    for name, value in receipt.guard.evidence.items():
        kind, error, _ = name.partition("_error_ratio")
        what = f"{kind}: {FULL_ERROR}" if error else TRAJECTORY.get(name, name.replace("_", " "))
        figures.append((what, "not finite" if value is None else f"{value:.3g}"))
    compared = bool(receipt.guard.evidence or receipt.guard.reasons or receipt.guard.verdict != "unverified")
    return {"compared": compared, "said": tuning.numbers_said(receipt), "figures": figures,
            "reasons": receipt.guard.reasons, "module": receipt.guard.first_module}  # fmt: skip


TRAJECTORY = {
    "trajectory_gap": "losses: how far they went from those of the program as written",
    "trajectory_band": "losses: how far they may go (another seed, float64 or the same precision goes as far)",
}


def _about(receipt: Receipt) -> list[Fact]:
    options = (f"{name}: {key}={value}" for name, found in sorted(receipt.options.items())
               for key, value in sorted(found.items()))  # fmt: skip
    return facts([
        ("program", [cleaned_command(receipt.command)]), ("folder", [receipt.folder]), ("date", [receipt.date]),
        ("machine", [receipt.machine]), ("seed", [str(receipt.seed)]), ("versions", [versions(receipt.versions)]),
        ("options", [", ".join(options)]), ("took", [f"{receipt.seconds / 60:.1f} min" if receipt.seconds else ""]),
    ])  # fmt: skip
