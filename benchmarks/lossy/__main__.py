"""Twelve models with real values, tuned under a gate of their measure, or by hand.

    python -m benchmarks.lossy [NAME ...] --weights DIR [--minutes 10]
    python -m benchmarks.lossy [NAME ...] --weights DIR --by-hand [--compile] [--runs 12]

What is not yet in DIR is trained first, some minutes each. Then `gobrrr tune --accept GATE` on each program, or the
forms that a skilled person would try by hand (hand.py). Writes benchmarks/results/lossy-DATE.md or
lossy-by-hand-DATE.md, with the JSON beside it, after every program; there the others of that day stay.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.lossy.cases import BY_NAME, Case
from benchmarks.lossy.train import ensure
from benchmarks.stamp import stamp

RESULTS = Path(__file__).parents[1] / "results"
BAR = 1.5
"""Geometric mean over the twelve, where the chip has units for int8 or bfloat16."""


def main() -> int:
    """Measure those named, write the table; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--weights", type=Path, required=True, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--compile", action="store_true", help="by hand: torch.compile, too")
    parser.add_argument("--runs", type=int, default=12, help="by hand: of each form")
    args = parser.parse_args()
    head, weights = stamp(), args.weights.resolve()
    file = RESULTS / f"lossy{'-by-hand' if args.by_hand else ''}-{head['date']}.json"
    for name in args.names or BY_NAME:
        case = BY_NAME[name]
        ensure(name, weights)
        found = hand(case, weights, args.compile, args.runs) if args.by_hand else tuned(case, weights, args.minutes)
        rows: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}  # others may write meanwhile
        rows[name] = _merged(rows.get(name), found) if args.by_hand else found
        rows = {known: rows[known] for known in BY_NAME if known in rows}
        file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        text = hand_table(rows, head) if args.by_hand else table(rows, head)
        file.with_suffix(".md").write_text(text, encoding="utf-8")
        print(json.dumps({name: rows[name]}), flush=True)
    return int(mean([each["best"][1] if args.by_hand else each["speedup"][0] for each in rows.values()]) < BAR)


def hand(case: Case, weights: Path, compiles: bool, runs: int) -> dict[str, Any]:
    """Forms by hand, as JSON."""
    from benchmarks.lossy import hand

    convolves = case.name in ("resnet", "mobilenet", "vgg", "diffusion")
    forms = {name: form for name, form in hand.FORMS.items() if convolves or "channels" not in name}
    seconds, value, told = hand.by_hand(case, weights, hand.COMPILED if compiles else forms, runs)
    named = {name: form if isinstance(form, str) else form._asdict() for name, form in told.items()}
    return {"ms": seconds * 1e3, "value": value, "forms": named, "best": hand.best(told)}


def _merged(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    if before is None:
        return now
    forms = {**before["forms"], **now["forms"]}
    return {**before, "forms": forms, "best": max(before["best"], now["best"], key=lambda each: each[1])}


def tuned(case: Case, weights: Path, minutes: float) -> dict[str, Any]:
    """`gobrrr tune` with the program's gate, in a folder with its weights."""
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{case.name}-") as place:
        folder = Path(place)
        shutil.copy2(case.script, folder)
        for each in weights.glob(f"{case.name}*"):
            (shutil.copytree if each.is_dir() else shutil.copy2)(each, folder / each.name)  # type: ignore[operator]
        command = [sys.executable, "-m", "gobrrr", "tune", "--json", "-o", "out", "--minutes", f"{minutes:g}",
                   "--accept", case.accept, *(["--measure", case.measure] if case.measure else []),
                   case.script.name]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ})
    try:
        receipt = json.loads(done.stdout)
    except ValueError:
        return {"speedup": [1.0, 1.0, 1.0], "kept": [], "guard": "none", "gates": [],
                "failed": (done.stderr.strip() or "nothing said").splitlines()[-1][:200]}  # fmt: skip
    speed, guard = receipt.get("speedup"), receipt["guard"]
    return {"speedup": [speed["median"], speed["low"], speed["high"]] if speed else [1.0, 1.0, 1.0],
            "kept": receipt["kept"], "guard": guard["verdict"], "gates": guard.get("gates", []),
            "step_ns": receipt["step_ns"], "seconds": receipt["seconds"], "failed": ""}  # fmt: skip


def mean(speedups: list[float]) -> float:
    """Geometric mean; of none 1."""
    return math.exp(fmean(map(math.log, speedups))) if speedups else 1.0


def _title(name: str, head: dict[str, Any]) -> str:
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    return (f"# {name}, {head['date']}\n\n{head['cpu']}, {head['cores']} cores, threads {threads}, load {head['load']}."
            f" Python {head['python']}, torch {head['torch']}.\n\n")  # fmt: skip


def table(rows: dict[str, Any], head: dict[str, Any]) -> str:
    """What tune brought, as Markdown."""
    lines = ["| program | gate | kept | speedup | measure | verdict |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        low, high = row["speedup"][1:]
        gates = "; ".join(f"{g['change']:+.3g} {g['unit']}: {g['verdict']}" for g in row["gates"])
        kept = row["failed"] or ", ".join(row["kept"]) or "nothing"
        lines.append(f"| {name} | {BY_NAME[name].accept} | {kept} | {row['speedup'][0]:.2f} ({low:.2f} to {high:.2f}) |"
                     f" {gates or '-'} | {row['guard']} |")  # fmt: skip
    found = mean([row["speedup"][0] for row in rows.values()])
    return _title("Tuned under a gate", head) + "\n".join(lines) + f"\n\nGeometric mean of {len(rows)}: {found:.2f}\n"


def hand_table(rows: dict[str, Any], head: dict[str, Any]) -> str:
    """What each form brought by hand, as Markdown."""
    forms = list(dict.fromkeys(form for row in rows.values() for form in row["forms"]))
    lines = [f"| program | gate | ms | as it is | {' | '.join(forms)} | best within its gate |",
             "|---|---|---|---|" + "---|" * (len(forms) + 1)]  # fmt: skip

    def cell(form: Any) -> str:
        if not isinstance(form, dict):
            return form or "-"
        return f"{form['speedup']:.2f} ({form['low']:.2f} to {form['high']:.2f}), loses {form['lost']:+.2f}"

    for name, row in rows.items():
        told = " | ".join(cell(row["forms"].get(form)) for form in forms)
        lines.append(f"| {name} | {BY_NAME[name].accept} | {row['ms']:.0f} | {row['value']:.4g} | {told} | "
                     f"{row['best'][0]}: {row['best'][1]:.2f} |")  # fmt: skip
    found = mean([row["best"][1] for row in rows.values()])
    note = ("Speedups of CPU time from eval() to the end of a small run, medians (quartiles) of pairs of one seed; what"
            " is lost is in allowances of the gate: 1 is all of it, below 0 is better than float32.")  # fmt: skip
    told = "\n".join(lines) + f"\n\nGeometric mean of the best of {len(rows)}: {found:.2f}\n"
    return _title("By hand", head) + note + "\n\n" + told


if __name__ == "__main__":
    sys.exit(main())
