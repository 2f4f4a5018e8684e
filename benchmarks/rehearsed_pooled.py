"""How well does one day's truth foretell another's, and what do promises make of both together?

    python -m benchmarks.rehearsed_pooled FIRST.json SECOND.json [...]

Files of benchmarks.rehearsed_zoo. The truths of a pair of program and remedy are weighed by the inverse of their
variance, an interval of 95 % being taken as 3.92 standard errors; promises are those of the first file.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rehearsed import LARGE, bars

WIDTH = 3.92
"""Standard errors that an interval of 95 % is wide."""
Key = tuple[str, str]
"""Program and remedy."""


class Truth(NamedTuple):
    """What a remedy brought, as a share of the step, and its standard error."""

    share: float
    error: float


def pairs_of(file: str) -> dict[Key, dict[str, Any]]:
    """What was promised and measured, by program and remedy."""
    programs = json.loads(Path(file).read_text(encoding="utf-8"))["programs"].values()
    return {(p["program"], p["remedy"]): p for each in programs for p in each["pairs"] if p["promised"]}


def truth(pair: Mapping[str, Any]) -> Truth:
    """Of one measurement."""
    low, high = pair["realised_interval_ns"]
    return Truth(pair["realised_ns"] / pair["step_ns"], max((high - low) / pair["step_ns"] / WIDTH, 1e-4))


def pooled(truths: Iterable[Truth]) -> Truth:
    """Of several measurements of the same."""
    weighed = [(each.share, each.error**-2) for each in truths]
    weight = sum(w for _, w in weighed)
    return Truth(sum(share * w for share, w in weighed) / weight, weight**-0.5)


def against(pair: Mapping[str, Any], found: Truth) -> dict[str, Any]:
    """The promise of one measurement beside another truth."""
    margin = WIDTH / 2 * found.error
    interval = [(found.share + by) * pair["step_ns"] for by in (-margin, margin)]
    return {**pair, "realised_ns": found.share * pair["step_ns"], "realised_interval_ns": interval}


def main(files: list[str]) -> int:
    """Print both."""
    days = [pairs_of(file) for file in files]
    known = {key: [truth(day[key]) for day in days if key in day] for key in days[0]}
    again = {key: pooled(truths) for key, truths in known.items() if len(truths) > 1}
    told = bars([against(days[0][key], found) for key, found in again.items()])
    print(f"{len(again)} pairs that were measured twice and more; promises of the first file, truths of all together")
    for bar, found in told.items():
        print(f"- {'met' if found['met'] else 'MISSED'}: {bar}: {found['value']}")
    for (one, a), (other, b) in permutations(zip(files, days, strict=True), 2):
        large = [k for k in a.keys() & b.keys() if a[k]["promised"][1] > LARGE * a[k]["step_ns"]]
        errors = [abs(truth(a[k]).share / truth(b[k]).share - 1) for k in large]
        if errors:
            print(
                f"{Path(one).stem} foretells {Path(other).stem} with a median error of "
                f"{statistics.median(errors):.2f} over the {len(large)} where 3 % and more is expected"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
