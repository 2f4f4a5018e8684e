"""Does `gobrrr sweep` find the batch size that serves best, and do its points tell of sizes that it did not measure?

    python -m benchmarks.sweeps [--only WORD ...] [--minutes 3] [--json FILE]

For each program of others: a sweep with sizes of its own choice (eight at most), then a grid of all sizes from its
least to its largest in steps of a fourth of a doubling. Its choice is held against the grid's best, and a step's time
between its points, on the straight line, against the grid's.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.errors import GobrrrError
from gobrrr.pipeline import sweeping
from gobrrr.trial.edit import setting
from gobrrr.trial.statistics.scaling import between

HERE = Path(__file__).parent
PROGRAMS = (
    ("../examples/gpt/train.py", ("--steps", "1000000")), ("../examples/images/train.py", ("--epochs", "1000")),
    ("models/vit.py", ("--steps", "1000000")), ("models/bert.py", ("--steps", "1000000")),
    *((f"proving/{name}/program.py", ()) for name in ("gan", "inference", "nanogpt", "loader_bound")),
    *((f"zoo/programs/{name}.py", ()) for name in ("pyg_graphs", "lightning_images", "peft_lora")),
)  # fmt: skip
GRID = 12
"""Sizes of the grid at most."""


def main() -> int:
    """Measure all and print the table; 0 where each choice is within 5 % of the best and held-out sizes within 8 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"sweeps-{stamp()['date']}.json")
    args = parser.parse_args()
    rows = []
    for name, words in PROGRAMS:
        if not args.only or any(word in name for word in args.only):
            rows.append({"name": name, **row((HERE / name).resolve(), words, args.minutes)})
            print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    lost = [each["lost"] for each in rows if "lost" in each]
    held = [abs(error) for each in rows for error in each.get("held_out", {}).values()]
    bars = {"programs": len(lost), "lost_most": max(lost, default=None), "held_out": len(held),
            "held_out_median": statistics.median(held) if held else None, "held_out_most": max(held, default=None),
            "held_out_within_8": sum(error <= 0.08 for error in held)}  # fmt: skip
    args.json.write_text(json.dumps({**stamp(), "bars": bars, "programs": rows}, indent=1) + "\n", encoding="utf-8")
    print(bars)
    return 0 if lost and max(lost) <= 0.05 and max(held, default=0.0) <= 0.08 else 1


def row(program: Path, words: tuple[str, ...], minutes: float) -> dict[str, Any]:
    """The choice and the points of a sweep of one program against a grid."""
    source = Path(tempfile.mkdtemp(prefix="gobrrr-sweeps-"))
    for file in program.parent.iterdir():
        if file.is_file():
            shutil.copy2(file, source)
    command, told = [sys.executable, program.name, *words], io.StringIO()
    try:
        found = setting.find("batch", command, source)
        wanted = sweeping.Wanted(found, seconds=60 * minutes)
        swept = sweeping.sweep(command, source, source / "sweep", wanted, told)
        sizes = sorted(int(point.value) for point in swept.points if point.step_ns)
        values = tuple(map(str, grid(sizes[0], sizes[-1])))
        full = sweeping.sweep(command, source, source / "grid", wanted._replace(values=values), told)
    except (GobrrrError, ValueError) as error:
        return {"why": str(error)}
    finally:
        shutil.rmtree(source, ignore_errors=True)
    known = {int(point.value): point.step_ns for point in full.points if point.step_ns}
    rates = {size: size / ns for size, ns in known.items()}
    points = [(float(point.value), point.step_ns) for point in swept.points if point.step_ns]
    lines = {size: between(points, size) for size in known if size not in sizes}
    return {
        "sizes": sizes, "best": int(swept.best), "grid_best": max(rates, key=lambda size: rates[size]),
        "lost": round(1 - rates[int(swept.best)] / max(rates.values()), 4),
        "held_out": {size: round(at / known[size] - 1, 4) for size, at in lines.items() if at},
        "grid_ms": {size: round(ns / 1e6, 3) for size, ns in sorted(known.items())},
    }  # fmt: skip


def grid(least: int, most: int) -> list[int]:
    """Sizes from the least to the most, all doublings of the least among them; the smallest steps go first."""
    found, size = {least, most}, least
    while size <= most:
        found |= {size, *(round(size * factor) for factor in (1.25, 1.5, 1.75) if size * factor <= most)}
        size *= 2
    doublings = sorted(each for each in found if (each // least).bit_count() == 1 and each % least == 0)
    others = sorted(found - set(doublings), reverse=True)
    return sorted({*doublings, *others[: max(0, GRID - len(doublings))]})


if __name__ == "__main__":
    sys.exit(main())
