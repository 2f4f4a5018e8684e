"""Does `gobrrr sweep` find the batch size that serves best, and do its points tell of sizes that it did not measure?

    python -m benchmarks.sweeps [--only WORD ...] [--minutes 3] [--json FILE]

For each program of others: a sweep with sizes of its own choice (eight at most), then a grid of all sizes from its
least to its largest in steps of a fourth of a doubling. Its choice and the grid's best are measured against each other
once more, for the best of many noisy figures is too good; a step's time between its points, on the straight line, is
held against the grid's, as it is and with the machine's drift taken out: the median of the sizes that both measured.
"""

from __future__ import annotations

import io
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.varied import STEPS, measured
from gobrrr.pipeline import sweeping
from gobrrr.trial.edit.setting import Setting
from gobrrr.trial.receipt.swept import Swept
from gobrrr.trial.statistics.scaling import between

PROGRAMS = (
    ("../examples/gpt/train.py", STEPS), ("../examples/images/train.py", ("--epochs", "1000")),
    ("models/vit.py", STEPS), ("models/bert.py", STEPS),
    *((f"proving/{name}/program.py", ()) for name in ("gan", "inference", "nanogpt", "loader_bound")),
    *((f"zoo/programs/{name}.py", ()) for name in ("pyg_graphs", "lightning_images", "peft_lora")),
)  # fmt: skip
GRID = 12
"""Sizes of the grid at most."""


def main() -> int:
    """Measure all and print the table; 0 where each choice is within 5 % of the best and held-out sizes within 8 %."""
    found = measured(__doc__, "sweeps", PROGRAMS, row, bars)
    good = found["held_out"] and found["lost_most"] <= 0.05 and found["held_out_within_8"] == found["held_out"]
    return 0 if good else 1


def bars(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the most that a choice lost, and how far held-out sizes were off."""
    lost = [each["lost"] for each in rows if "lost" in each]
    found = {"programs": len(lost), "lost_most": max(lost, default=None), "lost_within_5": sum(x <= 0.05 for x in lost)}
    for name in ("held_out", "held_out_no_drift"):
        held = [abs(error) for each in rows for error in each.get(name, {}).values()]
        found |= {name: len(held), f"{name}_median": statistics.median(held) if held else None,
                  f"{name}_most": max(held, default=None),
                  f"{name}_within_8": sum(x <= 0.08 for x in held)}  # fmt: skip
    return found


def row(source: Path, command: list[str], found: Setting, seconds: float) -> dict[str, Any]:
    """Return the choice and the points of a sweep of one program against a grid."""

    def swept(name: str, values: tuple[int, ...] = (), share: float = 1.0) -> Swept:
        wanted = sweeping.Wanted(found, tuple(map(str, values)), seconds=share * seconds)
        return sweeping.sweep(command, source, source / name, wanted, io.StringIO())

    own = swept("sweep")
    sizes, best = sorted(int(point.value) for point in own.points if point.step_ns), int(own.best)
    known = _times(swept("grid", grid(sizes[0], sizes[-1])))
    most = max(known, key=lambda size: size / known[size])
    again = _times(swept("again", (best, most), 0.5)) if best != most else {}
    points = [(float(point.value), point.step_ns) for point in own.points if point.step_ns]
    lines = {size: at / known[size] for size in known if size not in sizes and (at := between(points, size))}
    drift = statistics.median([ns / known[int(size)] for size, ns in points if int(size) in known])
    return {
        "sizes": sizes, "best": best, "grid_best": most,
        "lost": round(1 - (best / again[best]) / (most / again[most]), 4) if again else 0.0,
        "lost_in_grid": round(1 - (best / known[best]) / (most / known[most]), 4) if best in known else None,
        "held_out": {size: round(ratio - 1, 4) for size, ratio in lines.items()},
        "drift": round(drift - 1, 4),
        "held_out_no_drift": {size: round(ratio / drift - 1, 4) for size, ratio in lines.items()},
        "ms": {int(size): round(ns / 1e6, 3) for size, ns in points},
        "grid_ms": {size: round(ns / 1e6, 3) for size, ns in sorted(known.items())},
    }  # fmt: skip


def _times(swept: Swept) -> dict[int, float]:
    return {int(point.value): point.step_ns for point in swept.points if point.step_ns}


def grid(least: int, most: int) -> tuple[int, ...]:
    """Sizes from the least to the most, all doublings of the least among them; the smallest steps go first."""
    found, size = {least, most}, least
    while size <= most:
        found |= {size, *(round(size * factor) for factor in (1.25, 1.5, 1.75) if size * factor <= most)}
        size *= 2
    doublings = sorted(each for each in found if (each // least).bit_count() == 1 and each % least == 0)
    others = sorted(found - set(doublings), reverse=True)
    return tuple(sorted({*doublings, *others[: max(0, GRID - len(doublings))]}))


if __name__ == "__main__":
    sys.exit(main())
