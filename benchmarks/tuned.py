"""What `gobrrr tune` brings on programs that others' models are trained by, beside what a user would pick instead.

    python -m benchmarks.tuned [--only bert ...] [--minutes 5] [--seconds 30]

For each program: a tuning; then, paired, in arms started anew, what an expert tries by hand: torch.compile and bf16
autocast alone, and stacks; and the recipe against the best of these.
The table and the predictions beside what was realised go to
benchmarks/results/tuned-DATE.{json,md}, after every program; there the others of that day stay.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.pipeline import tuning
from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.race.tuning import Measured

MODELS = Path(__file__).parent / "models"
NAMES = ("bert", "gpt2", "llama", "t5", "vit", "whisper")
BESIDE = 0.95
"""Of the best by hand, what a recipe must reach."""
RESULTS = Path(__file__).parent / "results"
BY_HAND = (
    ("compile",), ("bf16_autocast",), ("fused_optimizer", "malloc_thresholds"),
    ("compile", "fused_optimizer", "malloc_thresholds"), ("bf16_autocast", "fused_optimizer", "malloc_thresholds"),
    ("compile", "bf16_autocast", "fused_optimizer", "malloc_thresholds"),
)  # fmt: skip
"""What an expert tries in ten minutes; the best of it is what a recipe is held against."""


def main() -> int:
    """Tune each, compare, print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="of blocks for each comparison at the end")
    parser.add_argument("--try", dest="named", default="", metavar="A,B", help="remedies to try on all of them")
    args = parser.parse_args()
    named = tuple(filter(None, args.named.split(",")))
    file = RESULTS / f"tuned-{stamp()['date']}.json"
    programs = json.loads(file.read_text(encoding="utf-8"))["programs"] if file.exists() else []
    for name in args.only:
        programs = [each for each in programs if each["name"] != name]
        programs.append(tuned(name, args.minutes, args.seconds, named))
        found = {"schema": "gobrrr.tuned/2", **stamp(), "bars": bars(programs), "programs": programs}
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(table(found), encoding="utf-8")
        print(row(programs[-1]), flush=True)
    print(table(found))
    return 0 if all(bar["met"] for bar in found["bars"].values()) else 1


def tuned(name: str, minutes: float, seconds: float, named: tuple[str, ...]) -> dict[str, Any]:
    """One program: its tuning, and the recipe against three others."""
    source = Path(tempfile.mkdtemp(prefix=f"gobrrr-{name}-"))
    for file in MODELS.glob("*.py"):
        shutil.copy2(file, source)
    command = [sys.executable, f"{name}.py", "--steps", "1000000"]
    try:
        outcome = tuning.tune(command, source, source / "out", tuning.Wishes(minutes * 60, named), sys.stderr)
        receipt = outcome.receipt
        program = Program(tuple(command), source, receipt.step_ns or 0.0)
        referee = LiveReferee(program, source / "arms", seed=1, seconds=seconds)
        by_hand = {" + ".join(stack): _figures(referee.measure(Plan((), stack))) for stack in BY_HAND}
        best = max(BY_HAND, key=lambda stack: (by_hand[" + ".join(stack)]["speedup"] or [0.0])[0])
        against = _figures(referee.measure(Plan(best, receipt.kept)))
        final = receipt.speedup
        return {
            "by_hand": by_hand, "best_by_hand": best,
            "name": name, "minutes": minutes, "step_ns": receipt.step_ns,
            "kept": receipt.kept, "guard": receipt.guard.verdict,
            "reasons": receipt.guard.reasons,
            "speedup": [final.median, final.low, final.high] if final else [1.0, 1.0, 1.0],
            "over_by_hand": against,
            "trials": [
                {"remedies": t.remedies, "onto": t.onto, "purpose": t.purpose, "verdict": t.verdict, "reason": t.reason,
                 "speedup": [t.speedup.median, t.speedup.low, t.speedup.high] if t.speedup else None,
                 "guard": t.guard.verdict, "reasons": t.guard.reasons, "realised_ns": t.realised_ns,
                 "predicted": [t.predicted.low_ns, t.predicted.expected_ns, t.predicted.ceiling_ns] if t.predicted
                 else None}
                for t in receipt.trials
            ],
        }  # fmt: skip
    finally:
        shutil.rmtree(source, ignore_errors=True)


def _figures(found: Measured) -> dict[str, Any]:
    speed = found.speedup
    return {"verdict": found.verdict, "reason": found.reason,
            "speedup": [speed.median, speed.low, speed.high] if speed else None}  # fmt: skip


def bars(programs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The issue's bars on what was measured so far."""
    gains = [p["speedup"][0] for p in programs]
    mean = math.exp(statistics.fmean(map(math.log, gains)))
    over = {p["name"]: p["over_by_hand"]["speedup"] for p in programs if p["over_by_hand"]["speedup"]}
    beaten = [name for name, speedup in over.items() if speedup[2] < BESIDE]
    slower = [p["name"] for p in programs if p["speedup"][2] < 1]
    red = [p["name"] for p in programs if p["kept"] and p["guard"] not in ("exact", "equivalent", "bounded")]
    told = [t for p in programs for t in p["trials"] if t["purpose"] == "add" and t["predicted"] and t["speedup"]
            and t["realised_ns"] is not None and t["predicted"][2] > 0]  # fmt: skip
    inside = [t["predicted"][0] <= t["realised_ns"] <= t["predicted"][2] for t in told]
    errors = [abs(t["predicted"][1] - t["realised_ns"]) / abs(t["realised_ns"]) for t in told if t["realised_ns"]]
    return {
        "geometric mean over the program as written, at least 2.0": {"value": mean, "met": mean >= 2.0},
        f"at least {BESIDE} of the best by hand, within the interval": {"value": beaten, "met": not beaten},
        "no recipe slower than the program": {"value": slower, "met": not slower},
        "guard green on all": {"value": red, "met": not red},
        "realised within [low, ceiling] in at least 90 %": {
            "value": statistics.fmean(inside) if inside else None, "met": not inside or statistics.fmean(inside) >= 0.9,
        },
        "median error of expected at most 25 %": {
            "value": statistics.median(errors) if errors else None,
            "met": not errors or statistics.median(errors) <= 0.25,
        },
    }  # fmt: skip


def row(program: dict[str, Any]) -> str:
    """One line of the table."""

    def times(figures: list[float] | None) -> str:
        return f"{figures[0]:.2f} ({figures[1]:.2f} to {figures[2]:.2f})" if figures else "-"

    alone = " | ".join(times(program["by_hand"][pick]["speedup"]) for pick in ("compile", "bf16_autocast"))
    best = " + ".join(program["best_by_hand"])
    hand = f"{best}: {times(program['by_hand'][best]['speedup'])}"
    step = f"{(program['step_ns'] or 0) / 1e6:.1f} ms"
    kept = ", ".join(program["kept"]) or "nothing"
    name = f"{program['name']} | {program['minutes']:g} | {step}"
    return (f"| {name} | {kept} | {times(program['speedup'])} | {program['guard']} | {alone} | {hand} | "
            f"{times(program['over_by_hand']['speedup'])} |")  # fmt: skip


def table(found: dict[str, Any]) -> str:
    """The result as Markdown."""
    head = (
        f"# Tuned programs, {found['date']}\n\n{found['cpu']}, {found['cores']} cores. Python {found['python']}, "
        f"torch {found['torch']}, gobrrr {found['gobrrr']}\n\n"
        "| program | minutes | step | kept | recipe | numbers | compile alone | bf16 alone | best by hand | recipe over"
        " by hand |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    rows = "\n".join(row(program) for program in found["programs"])
    told = "\n".join(
        f"- {'met   ' if b['met'] else 'MISSED'} {name}: {b['value']}" for name, b in found["bars"].items()
    )
    return f"{head}{rows}\n\n{told}\n"


if __name__ == "__main__":
    sys.exit(main())
