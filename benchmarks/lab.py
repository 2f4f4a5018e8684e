"""docs/trust/lab.md and the table beside the receipts, from what the lab measured on one of our machines:

gobrrr lab --all --minutes 45 -o benchmarks/results/lab/DATE-MACHINE.json
python -m benchmarks.lab benchmarks/results/lab/DATE-MACHINE.json
python -m benchmarks.claims
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from gobrrr_lab import load
from gobrrr_lab.measure.result import Result
from gobrrr_lab.measure.runner import read
from gobrrr_lab.show.page import as_markdown
from gobrrr_lab.show.text import counted, told

PAGE = Path(__file__).parents[1] / "docs" / "trust" / "lab.md"
SHOWN = "low_rank"
WIDTH = 100


def off(results: Sequence[Result], timed: bool) -> tuple[int, float]:
    """How many have a formula, and the median distance of measured from predicted, as a share; `timed`: without those
    that are counted, whose interval is a point."""
    found = [r.found for r in results if r.found and r.found.predicted]
    kept = [f for f in found if not timed or f.factor.low != f.factor.high]
    return len(kept), median(abs(f.factor.value / (f.predicted or 1.0) - 1) for f in kept)


def page(text: str, results: Sequence[Result], where: str) -> str:
    """The page with its example, its sentence of all, and its table made anew."""
    one = next(result for result in results if result.name == SHOWN)
    shown = told(one, load()[SHOWN], WIDTH).rstrip()
    example = "\n".join(f"    {line}".rstrip() for line in (f"$ gobrrr lab {SHOWN}", *shown.splitlines()))
    text = re.sub(r"(## One of them\n\n).*?(\n\n## )", lambda m: m[1] + example + m[2], text, flags=re.S)
    real = next(result for result in results if result.found)
    (num, all_off), (num_timed, timed_off) = off(results, False), off(results, True)
    summary = (
        f"{real.cpu}, {real.cores} cores, torch {real.torch}, {real.date}: {counted(results)}.\n"
        f"Of the {num} with a formula the measured factor is {all_off:.0%} from the predicted one (median; of the "
        f"{num_timed} that are timed,\nnot counted, {timed_off:.0%}). [With their rows and why]({where}).\n"
    ).replace("%", " %")
    table = re.search(r"^\| # \|.*?(?=\n\n|\Z)", as_markdown(results), flags=re.S | re.M)
    assert table is not None
    head = "## All of them on one of our machines\n\n"
    return text[: text.index(head)] + head + summary + "\n" + table[0] + "\n"


def main(file: Path) -> None:
    """Write both."""
    results = read(file)
    file.with_suffix(".md").write_text(as_markdown(results), encoding="utf-8")
    where = f"../../{file.resolve().with_suffix('.md').relative_to(PAGE.parents[2])}"
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results, where), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
