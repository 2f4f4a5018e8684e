"""The lab's results in a file: JSON, Markdown or a page of HTML; and several machines side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.report.html.html import page
from gobrrr.system.escape import markdown, plain
from gobrrr_lab import load
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Result
from gobrrr_lab.measure.verdict import CANNOT
from gobrrr_lab.show.chart import curve
from gobrrr_lab.show.text import counted, figure_text, value

SUFFIXES = (".json", ".md", ".html")


def check_target(output: str) -> None:
    """Before twenty minutes of measuring: raises GobrrrError for a form or a folder that there is not."""
    suffix = PurePath(output).suffix
    if suffix not in SUFFIXES:
        raise GobrrrError(f"{output}: no form of the lab is called '{suffix}'", f"name it {' or '.join(SUFFIXES)}")
    if not Path(output).parent.is_dir() or Path(output).is_dir():
        raise GobrrrError(f"{output} cannot be written", "name a file in a folder that is there")


def written(results: Sequence[Result], output: str) -> bytes:
    """The results in the form that the file's suffix names. Raises GobrrrError for any other."""
    check_target(output)
    suffix = PurePath(output).suffix
    data = msgspec.json.encode(list(results))
    if suffix == ".json":
        return msgspec.json.format(data) + b"\n"
    return (as_markdown(results) if suffix == ".md" else _html(results, data)).encode()


def as_markdown(results: Sequence[Result]) -> str:
    """A table of all, then each with its claim and why."""
    known, lines = (
        load(),
        [f"# gobrrr lab: {counted(results)}", "", *map(markdown, _machine(results)), "", *_summary(results), ""],
    )
    for result in results:
        one = known.get(result.name)
        if one is None or result.found is None:
            continue
        lines += [f"## {result.number}. {markdown(one.title)}: {result.verdict}", "", markdown(one.claim),
                  f"({markdown(one.source)}; published: {markdown(one.published)})", "", *_rows(result),
                  *filter(None, (markdown(result.found.cause),)), "", markdown(one.why), ""]  # fmt: skip
    return "\n".join(lines)


def beside(results: Sequence[Result]) -> str:
    """One line for each experiment, one column for each machine, as Markdown."""
    machines = list(dict.fromkeys(_where(result) for result in results if result.cpu))
    cells = {(result.name, _where(result)): f"{result.verdict} {_factor(result)}".strip() for result in results}
    names = list(dict.fromkeys(result.name for result in results))
    head = f"| experiment | {' | '.join(map(markdown, machines))} |\n|{'---|' * (len(machines) + 1)}\n"
    rows = (f"| {markdown(n)} | {' | '.join(markdown(cells.get((n, m), '')) for m in machines)} |\n" for n in names)
    return head + "".join(rows)


def _where(result: Result) -> str:
    return f"{result.cpu}, {result.cores} cores" if result.cores else result.cpu


def _machine(results: Sequence[Result]) -> list[str]:
    said = dict.fromkeys(f"{_where(r)}, torch {r.torch}, {r.date}" for r in results if r.torch)
    return list(said)


def _summary(results: Sequence[Result]) -> list[str]:
    lines = ["| # | experiment | verdict | measured | predicted | published |", "|--:|---|---|---|---|---|"]
    for r in results:
        told = r.why_not if r.verdict == CANNOT else _factor(r)
        cells = (r.name, r.verdict, told, _predicted(r), r.published)
        lines.append(f"| {r.number} | {' | '.join(map(markdown, cells))} |")
    return lines


def _factor(result: Result) -> str:
    one = load().get(result.name)
    return figure_text(result.found.factor, one.unit) if result.found and one else ""


def _predicted(result: Result) -> str:
    one = load().get(result.name)
    return value(result.found.predicted, one.unit) if result.found and result.found.predicted and one else ""


def _rows(result: Result) -> list[str]:
    rows = result.found.rows if result.found else ()
    if not rows:
        return []
    lines = ["| | measured | predicted |", "|---|--:|--:|"]
    for row in rows:
        predicted = value(row.predicted, row.unit) if row.predicted is not None else ""
        cells = (row.label, figure_text(row.measured, row.unit), predicted)
        lines.append(f"| {' | '.join(map(markdown, cells))} |")
    return [*lines, ""]


def _html(results: Sequence[Result], data: bytes) -> str:
    known = load()
    shown = [(result, known[result.name]) for result in results if result.name in known]
    return page("lab.html.j2", data, Path(__file__).parent, counted=counted(results), machine=_machine(results),
                shown=[_shown(result, one) for result, one in shown])  # fmt: skip


def _shown(result: Result, one: Experiment) -> dict[str, object]:
    found = result.found
    rows = found.rows if found else ()
    return {
        "it": result, "one": one, "factor": _factor(result), "predicted": _predicted(result),
        "chart": curve(rows, one.axis),
        "rows": [(row.label, figure_text(row.measured, row.unit),
                  value(row.predicted, row.unit) if row.predicted is not None else "") for row in rows],
        "cause": plain(found.cause) if found else result.why_not,
    }  # fmt: skip
