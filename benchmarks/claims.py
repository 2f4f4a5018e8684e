"""What answers each claim of the course: `python -m benchmarks.claims` makes docs/claims.md of docs/claims.toml, with
the verdicts of the lab on our machines (results/lab)."""

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
from gobrrr.lab import load
from gobrrr.lab.model import Result
from gobrrr.lab.runner import kept
from gobrrr.lab.text import figure_text
from gobrrr.remedies import registry
from gobrrr.rules import load as rules

ROOT = Path(__file__).parents[1]
SOURCE, PAGE, RESULTS = (
    ROOT / "docs" / "claims.toml",
    ROOT / "docs" / "claims.md",
    ROOT / "benchmarks" / "results" / "lab",
)
HEAD = """# What the course claims, and what answers it

Made by `python -m benchmarks.claims` from `claims.toml`. A claim is answered by an experiment of the lab (with its
verdict on our machines), a finding, a remedy, a part or a command; what is not built says why.
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
    if kind == "remedy":
        return name not in registry.names()
    if kind == "part":
        import gobrrr.data

        return name not in gobrrr.data.__all__
    if answer.startswith("BRR"):
        return answer not in rules()
    verb = re.fullmatch(r"`gobrrr (\w+)`", answer)
    return verb[1] not in {each.name for each in VERBS} if verb else not (kind == "not built" and name.strip())


def page() -> str:
    """docs/claims.md."""
    results = kept(RESULTS)
    parts = [HEAD]
    for title, rows in claims().items():
        lines = "".join(_line(row, results) for row in rows)
        parts.append(f"## {title}\n\n| # | claim | answered by |\n|--:|---|---|\n{lines}")
    return "\n".join(parts)


def _line(row: Claim, results: list[Result]) -> str:
    number, says, answers = row
    return f"| {number} | {says} | {'; '.join(text for answer in answers for text in _said(answer, results))} |\n"


def _said(answer: str, results: list[Result]) -> Iterator[str]:
    kind, _, name = answer.partition(":")
    if kind == "lab":
        called, one = next((known, each) for known, each in load().items() if each.number == int(name))
        told = [f"{r.verdict} {figure_text(r.found.factor, one.unit)} on {r.cpu}, {r.cores} cores"
                for r in results if r.name == called and r.found]  # fmt: skip
        yield f"experiment `{called}`: {', '.join(told) or 'not measured on our machines'}"
    elif answer.startswith("BRR"):
        yield f"[{answer}](../src/gobrrr/rules/pages/{answer}.md)"
    elif kind == "remedy":
        yield f"[{name}](../src/gobrrr/remedies/pages/{name}.md)"
    elif kind == "part":
        yield f"[`gobrrr.data.{name}`](data.md)"
    else:
        yield answer


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
