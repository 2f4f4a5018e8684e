"""The lab in a terminal: what there is, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.report.text.page import Page, laid_out
from gobrrr.report.told.bars import bar
from gobrrr_lab.measure.experiment import CHAPTERS, Experiment
from gobrrr_lab.measure.result import Figure, Result, Row
from gobrrr_lab.measure.verdict import CANNOT, INCONCLUSIVE, INVERTED, NOT_HERE, REPRODUCED

STYLES = {REPRODUCED: "green", NOT_HERE: "yellow", INVERTED: "red", INCONCLUSIVE: "dim", CANNOT: "dim"}
BAR = 16  # characters of a full bar; proposed: fits beside figures in 100 columns; readers would settle it
UNITS = {"ns": units.duration, "FLOP/s": units.flop_rate, "B/s": units.byte_rate, "B": units.size, "FLOP": units.flops}


def listing(
    experiments: Mapping[str, Experiment], missing: Mapping[str, str], results: Sequence[Result], width: int = 100,
    color: bool = False,
) -> str:  # fmt: skip
    """Every experiment by chapter: its verdict where it was measured here, what it lacks where it cannot run."""
    last = {result.name: result for result in results}
    longest = max(map(len, experiments))
    blocks = []
    for chapter, heading in CHAPTERS.items():
        rows = []
        for name, one in experiments.items():
            lacks = missing.get(name, "")
            title = f"{lacks}: {one.title}" if lacks else one.title
            line = (f"{one.number:>3}  {name:<{longest}}  ", _state(last.get(name), lacks), f"  {title}")
            rows += [Text.assemble(*line, overflow="ellipsis", no_wrap=True)] if one.chapter == chapter else []
        blocks.append([Text(f"{heading}  (gobrrr lab {chapter})", style="bold"), *rows] if rows else [])
    can = sum(not missing.get(name) for name in experiments)
    end = f"{len(experiments)} experiments, {can} can run here; gobrrr lab NAME, NUMBER or CHAPTER, or --all"
    return laid_out([*blocks, [Text(end)]], width, color)


def told(
    result: Result, experiment: Experiment, width: int = 100, color: bool = False, ascii_only: bool = False
) -> str:
    """One result: verdict, figures, rows, and why."""
    page = Page(width, ascii_only)
    style = STYLES.get(result.verdict, "")
    head = Text.assemble((result.verdict, f"bold {style}"), f": {experiment.title}  ",
                         (f"#{experiment.number} {result.name}", "dim"))  # fmt: skip
    lines: list[RenderableType] = [page.row("claim", Text(experiment.claim), Text(experiment.source, style="dim"))]
    lines.append(page.row("published", Text(experiment.published)))
    if result.found is None:
        lines.append(page.row("not here" if result.verdict == CANNOT else "stopped", Text(page.clean(result.why_not))))
        return laid_out([[head], lines], page.width, color)
    lines.append(page.row("measured", *_figures(result, experiment)))
    rows = [page.row("", *_table(result.found.rows, page))] if result.found.rows else []
    why = [
        page.row("why", *([Text(page.clean(result.found.cause))] if result.found.cause else []), Text(experiment.why))
    ]
    return laid_out([[head], lines, rows, why], page.width, color)


def counted(results: Iterable[Result]) -> str:
    """'12 reproduced, 3 not here, 1 inverted'."""
    verdicts = [result.verdict for result in results]
    return ", ".join(f"{verdicts.count(one)} {one}" for one in STYLES if one in verdicts) or "nothing was measured"


def value(figure: float, unit: str) -> str:
    """In its unit: 2.04x, 1.2 ms, 31.0 GFLOP/s."""
    if unit in UNITS:
        return UNITS[unit](figure)
    return f"{figure:.3g} %" if unit == "%" else f"{figure:.3g}{unit if unit in ('', 'x') else f' {unit}'}"


def figure_text(figure: Figure, unit: str) -> str:
    """With its interval where it has one."""
    if figure.low == figure.high:
        return value(figure.value, unit)
    return f"{value(figure.value, unit)} ({value(figure.low, unit)} to {value(figure.high, unit)})"


def _edge(end: float, unit: str) -> str:
    """Format the end of a range, to as many digits as it was written with."""
    return value(end, unit) if unit in UNITS else f"{end:.6g}{value(1.0, unit)[1:]}"


def _brief(figure: Figure, unit: str) -> str:
    """With half of its interval in per cent, where it has one."""
    half = 50 * (figure.high - figure.low) / abs(figure.value) if figure.value else 0.0
    return f"{value(figure.value, unit)} ±{half:.2g} %" if half > 0 else value(figure.value, unit)


def _state(result: Result | None, missing: str) -> tuple[str, str]:
    if missing:
        return f"{'-':<12}", "dim"
    verdict = result.verdict if result else ""
    return f"{verdict:<12}", STYLES.get(verdict, "")


def _figures(result: Result, experiment: Experiment) -> list[Text]:
    found = result.found
    assert found is not None
    low, high = (_edge(each, experiment.unit) for each in experiment.reproduced)
    lines = [Text.assemble((figure_text(found.factor, experiment.unit), "bold"), f"  {experiment.factor}")]
    if found.predicted:
        over = found.factor.value / found.predicted
        lines.append(Text(f"{value(found.predicted, experiment.unit)} predicted; measured over predicted {over:.2f}"))
    lines.append(Text(f"counts as reproduced from {low} to {high}", style="dim"))
    return lines


def _table(rows: Sequence[Row], page: Page) -> list[Text]:
    longest = max(len(row.label) for row in rows)
    figures = [_brief(row.measured, row.unit) for row in rows]
    said = [f"predicted {value(row.predicted, row.unit)}" if row.predicted is not None else "" for row in rows]
    wide, told_wide = max(map(len, figures)), max(map(len, said))
    peaks: dict[str, float] = {}
    for row in rows:
        peaks[row.unit] = max(peaks.get(row.unit, 0.0), row.measured.value)
    lines = []
    for row, figure, more in zip(rows, figures, said, strict=True):
        drawn = page.clean(bar(row.measured.value / (peaks[row.unit] or 1.0), BAR))
        line = f"{page.clean(row.label):<{longest}}  {figure:>{wide}}  {more:<{told_wide}}"
        line += f"  {drawn}" if len(line) + 2 + BAR <= page.body else ""
        lines.append(Text(line.rstrip(), no_wrap=True, overflow="ellipsis"))
    return lines
