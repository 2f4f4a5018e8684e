"""The page of a history: for each program step and peak over its runs, a strip for each finding, and every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from gobrrr.report.forms.formats import View
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part
from gobrrr.report.html.curve_chart import Axis, CurvePoint, curve
from gobrrr.report.html.findings_page import page_of
from gobrrr.report.runs import history as told
from gobrrr.report.told.blocks import Fact
from gobrrr.rules.verdict.history import History, Program, Run
from gobrrr.units import duration, size

NAMED = 12
"""Changes of a chart that have their run's name beside them, the newest: more would lie on each other."""
RUNS = Axis("run", lambda value: f"{value:,.0f}" if value == int(value) else "")


def parts(found: History, view: View) -> dict[str, Any]:
    """Everything that the template needs."""
    blocks = [block for group in told.blocks(found) for block in group]
    return {
        "programs": [_program(each) for each in found.programs],
        "key": {"has": charts.swatch("idle"), "not": charts.swatch("rest"), "unsure": charts.swatch("track")},
        "unread": [block for block in blocks if isinstance(block, Fact) and block.label == "not read"],
    }  # fmt: skip


def _program(found: Program) -> dict[str, Any]:
    sound = [run for run in found.runs if run.state == "sound"]
    steps = _points(sound, lambda run: run.step_ns, told.step_since, has_interval=True)
    peaks = _points(sound, lambda run: run.peak_bytes or 0, told.peak_since)
    codes = list(dict.fromkeys(code for run in sound for code in run.findings))
    return {
        "name": found.name, "headline": told.headline(found), "table": told.table(found, is_page=True),
        "changed": [(run.number, line) for run in found.runs if (line := told.changed(run))],
        "charts": [(heading, drawn) for heading, drawn in (
            ("Time of a step", curve(steps, RUNS, Axis("step, median with its 95 % interval", duration))),
            ("Memory", curve(peaks, RUNS, Axis("peak", size, is_binary=True))),
        ) if drawn],
        "findings": [(code, _strip(found, code), page_of(code)) for code in codes],
        "num_left_out": len(found.runs) - len(sound),
    }  # fmt: skip


def _points(
    runs: list[Run], figure: Callable[[Run], float], change: Callable[[Run], str], *, has_interval: bool = False
) -> list[CurvePoint]:
    """The runs as points, those named with which a new level begins; runs of two computers are not joined."""
    found, named = [], [run.number for run in runs if change(run)][-NAMED:]
    for at, run in enumerate(runs):
        said = f"run {run.number}, {told.when(run.began_ns)}: {(duration if has_interval else size)(figure(run))}"
        since, apart = change(run), at > 0 and runs[at - 1].place != run.place
        low, high = (run.low_ns, run.high_ns) if has_interval else (0, 0)
        name = f"run {run.number}" if run.number in named else ""
        said += f"; {since}" if since else ""
        found.append(CurvePoint(name, run.number, figure(run), "", low, high, said, apart))
    return found


def _strip(found: Program, code: str) -> Markup:
    """A part for each run: has the finding, has it not, or cannot be relied on."""
    kinds = {"has it": "idle", "has it not": "rest"}
    runs = [(run, "is " + run.state if run.state != "sound" else "has it" if code in run.findings else "has it not")
            for run in found.runs]  # fmt: skip
    drawn = [Part("run", 1.0, kinds.get(what, "track"), f"run {run.number} {what}") for run, what in runs]
    return charts.stack(drawn, f"Runs that have {code}")
