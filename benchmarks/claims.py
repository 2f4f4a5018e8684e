"""What answers each claim of the course: `python -m benchmarks.claims` makes docs/trust/claims.md of
claims.toml beside it, with the verdicts of the lab on our machines (results/lab)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gobrrr.cli.main import VERBS
from gobrrr.remedies import registry
from gobrrr.rules import load as rules
from gobrrr_lab import load
from gobrrr_lab.measure.result import Result
from gobrrr_lab.measure.runner import kept
from gobrrr_lab.show.text import figure_text

ROOT = Path(__file__).parents[1]
SOURCE, PAGE, RESULTS = (
    ROOT / "docs" / "trust" / "claims.toml",
    ROOT / "docs" / "trust" / "claims.md",
    ROOT / "benchmarks" / "results" / "lab",
)
HEAD = """# What a course claims, and what answers it

The course is one on efficient deep learning. A claim is answered by an experiment of [the lab](lab.md) with its verdict
on our machines, by a finding, a remedy, an edit, a part of [gobrrr.data](../fix/data.md) or a command. If nothing was
built for it, the row says why. "For your program": yes where a command, remedy or edit answers it of your own
program, told where a finding speaks of it, no where the lab alone has it.
Made by `python -m benchmarks.claims` from `claims.toml`.

"""

Claim = tuple[int, str, list[str]]


def claims() -> dict[str, list[Claim]]:
    """By the title of their chapter."""
    chapters = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return {chapter["title"]: [tuple(row) for row in chapter["rows"]] for chapter in chapters.values()}


def unknown(answer: str) -> bool:
    """Whether what is named is not there."""
    kind, _, name = answer.partition(":")
    if kind == "lab":
        return int(name) not in {one.number for one in load().values()}
    if kind in ("remedy", "edit"):
        return name not in (registry.names() if kind == "remedy" else registry.edit_names())
    if kind == "part":
        import gobrrr.data

        return name not in gobrrr.data.__all__
    if kind == "layer":
        import gobrrr.layers

        return name not in gobrrr.layers.__all__
    if answer.startswith("BRR"):
        return answer not in rules()
    verb = re.fullmatch(r"`gobrrr (\w+)`", answer)
    return verb[1] not in {each.name for each in VERBS} if verb else not (kind == "not built" and name.strip())


def page() -> str:
    """docs/trust/claims.md."""
    results = kept(RESULTS)
    parts = [f"{HEAD}Machines: {'; '.join(f'{letter}: {name}' for name, letter in _letters(results).items())}.\n"]
    for title, rows in claims().items():
        lines = "".join(_line(row, results) for row in rows)
        parts.append(f"## {title}\n\n| # | claim | for your program | answered by |\n|--:|---|---|---|\n{lines}")
    return "\n".join(parts)


def _machine(result: Result) -> str:
    return f"{result.cpu}, {result.cores} cores"


def _letters(results: list[Result]) -> dict[str, str]:
    """A letter for each machine, in the order of their receipts."""
    names = dict.fromkeys(_machine(result) for result in results if result.found)
    return dict(zip(names, "ABCDEFGHIJ", strict=False))


def _line(row: Claim, results: list[Result]) -> str:
    number, says, answers = row
    told = "; ".join(text for answer in answers for text in _said(answer, results))
    return f"| {number} | {says} |{for_a_program(answers)}| {told} |\n"


MEASURED, TOLD = ("run", "tune", "prove", "sweep", "fit", "explain"), ("diagnose", "compare", "machine")
"""Verbs that answer of the user's own program, and those that tell of a trace or a machine."""


def for_a_program(answers: list[str]) -> str:
    """Say whether a claim is answered of anybody's own program: yes where something changes or measures it, told where
    a finding or a verb speaks of it, no where the lab alone has it."""
    kinds = {answer.partition(":")[0] for answer in answers}
    verbs = {match[1] for answer in answers if (match := re.fullmatch(r"`gobrrr (\w+)`", answer))}
    if kinds & {"remedy", "edit", "part", "layer"} or verbs & set(MEASURED):
        return "yes"
    return "told" if verbs & set(TOLD) or any(answer.startswith("BRR") for answer in answers) else "no"


def _page(name: str, room: str) -> Path:
    (page,) = (ROOT / "src" / "gobrrr" / room).glob(f"*/{name}.md")
    return page.relative_to(ROOT)


def _said(answer: str, results: list[Result]) -> Iterator[str]:
    kind, _, name = answer.partition(":")
    if kind == "lab":
        called, one = next((known, each) for known, each in load().items() if each.number == int(name))
        letters = _letters(results)
        told = [f"{letters[_machine(r)]} {r.verdict} {figure_text(r.found.factor, one.unit)}"
                for r in results if r.name == called and r.found]  # fmt: skip
        yield f"`{called}`: {', '.join(told) or 'not measured on our machines'}"
    elif answer.startswith("BRR"):
        yield f"[{answer}](../../{_page(answer, 'rules')})"
    elif kind in ("remedy", "edit"):
        yield f"[{name}](../../{_page(name, 'remedies')})"
    elif kind == "layer":
        place = "batch.md#layers-that-keep-less" if name == "ConvBn2d" else "lossy.md#what-is-tried"
        yield f"[`gobrrr.layers.{name}`](../fix/{place})"
    elif kind == "part":
        yield f"[`gobrrr.data.{name}`](../fix/data.md)"
    else:
        yield answer


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
