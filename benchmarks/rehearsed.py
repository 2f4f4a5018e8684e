"""Are promises kept: what a rehearsal says of a remedy, beside the remedy applied by hand and measured paired.

    python -m benchmarks.rehearsed [--only bert ...] [--seconds 15]

For each program (benchmarks/rehearsed_programs): a run without rehearsal; every remedy played on its recorded ops; then
the program with the remedy written in by hand beside the program as it is, step by step in one process, in changing
order. Figures go to benchmarks/results/rehearsed-DATE.json and .md, after every pair.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.stamp import stamp
from gobrrr.ledger.build import build_ledger
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.ops.raised_ceilings import raised
from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.pipeline.ceilings import ceilings
from gobrrr.recording.run_folder.run import Start, load_run
from gobrrr.rehearsal.outcome import outcome, promised
from gobrrr.rehearsal.perform import perform
from gobrrr.rehearsal.scenes import scene
from gobrrr.rehearsal.script import Played, Scene, Script
from gobrrr.rules import judge
from gobrrr.rules.model.finding import Rehearsed

HERE = Path(__file__).parent
TRAIN = HERE / "rehearsed_programs" / "train.py"
PAIRS = {
    "vit": ("bf16_autocast", "sdpa_attention"),
    "resnet": ("bf16_autocast", "channels_last"),
    "nanogpt": ("bf16_autocast", "sdpa_attention", "fused_optimizer"),
    "gpt2": ("bf16_autocast", "chunked_loss", "fused_optimizer"),
    "double_mlp": ("float32",),
    "bert": ("bf16_autocast", "fused_optimizer"),
    "convnext": ("bf16_autocast", "channels_last"),
    "llama": ("bf16_autocast", "sdpa_attention"),
}
SECONDS, STARTED = 3.0, 30.0
"""For a remedy, as in a run; and for the start of its process, which on a machine that is shared takes long."""

LARGE = 0.03
"""Of the step: what a finding must promise to be shown at all."""


def main() -> int:
    """Play and measure all pairs; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(PAIRS), default=list(PAIRS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=15.0, help="of paired steps for each pair")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default=str(HERE / "results"), metavar="DIR")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # cores are shared here: spinning threads starve each other
    pairs: list[dict[str, Any]] = []
    for name in args.only:
        for pair in measured(name, args.seconds, args.threads):
            pairs.append(pair)
            found = {"schema": "gobrrr.rehearsed/1", **stamp(), "threads": args.threads, "bars": bars(pairs),
                     "pairs": pairs}  # fmt: skip
            file = Path(args.out) / f"rehearsed-{found['date']}.json"
            file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            file.with_suffix(".md").write_text(table(found), encoding="utf-8")
            print(row(pair), flush=True)
    print("\n".join(f"{bar['met']!s:>5}  {text}: {bar['value']}" for text, bar in bars(pairs).items()))
    return 0 if all(bar["met"] for bar in bars(pairs).values()) else 1


def measured(name: str, seconds: float, threads: int) -> Any:
    """The pairs of one program, one after the other."""
    folder = Path(tempfile.mkdtemp(prefix="gobrrr-rehearsed-"))
    program = [str(TRAIN), name, "--threads", str(threads)]
    try:
        command = [sys.executable, "-m", "gobrrr", "run", "-o", str(folder / "run"), "--no-rehearsal", *program]
        subprocess.run(command, check=True, capture_output=True, timeout=400)
        recording = load_run(folder / "run")[0]
        machine = raised(ceilings(recording), Profiled(recording), None)
        ledger = build_ledger(Profiled(recording), machine)
        estimates = {r: f.saving for f in reversed(judge(ledger, machine)[0]) for r in f.remedies}
        for remedy in PAIRS[name]:
            made = scene(remedy, ledger, machine, SECONDS)
            found, why = rehearse(made, ledger, recording.start) if made else (None, "no scene")
            done = subprocess.run([sys.executable, *program, "--against", remedy, "--seconds", str(seconds)],
                                  check=True, capture_output=True, text=True, timeout=400)  # fmt: skip
            steps = np.array(json.loads(done.stdout.splitlines()[-1]))
            shares = 1 - steps[:, 1] / steps[:, 0]
            before = estimates.get(remedy)
            yield {
                "program": name, "remedy": remedy, "step_ns": ledger.wall, "why_not": why,
                "promised": as_told(found, ledger.wall),
                "change_ns": found.change_ns if found else None,
                "realised_ns": float(np.median(shares)) * ledger.wall,
                "realised_interval_ns": [float(s) * ledger.wall for s in median_interval(shares)],
                "estimated": [before.low_ns, before.expected_ns, before.ceiling_ns] if before else None,
                "num_pairs": len(shares),
            }  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rehearse(made: Scene, ledger: Ledger, start: Start) -> tuple[Rehearsed | None, str]:
    """As in a run, but for the time that the process takes to start; why not, where it is nothing."""
    script = Script(start.torch, "cpu", ledger.threads, "highest", (made,), STARTED + SECONDS)
    done = perform(script, sys.executable).get(made.remedy, Played(made.remedy, why="it did not end"))
    if folder := os.environ.get("GOBRRR_KEEP_ROUNDS"):
        kept = {"wall": ledger.wall, "scene": made, "played": done}
        Path(folder, f"{made.remedy}-{ledger.wall:.0f}.json").write_bytes(msgspec.json.encode(kept))
    return outcome(made, done, ledger.wall), done.why


def as_told(found: Rehearsed | None, wall_ns: float) -> list[float] | None:
    """Low, expected and ceiling as a finding has them."""
    return list(msgspec.structs.astuple(promised(found, wall_ns))) if found else None


def bars(pairs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The issue's bars on what was rehearsed, and the first of them without the pairs that say little."""
    known = [p for p in pairs if p["promised"]]
    inside = [_inside(p) for p in known]
    contradicted = [f"{p['program']} {p['remedy']}" for p in known if _contradicted(p)]
    winners = [p for p in known if p["promised"][1] > LARGE * p["step_ns"]]
    large = [_inside(p) for p in known if max(p["promised"][1], abs(p["realised_ns"])) > LARGE * p["step_ns"]]
    errors = [abs(p["promised"][1] - p["realised_ns"]) / abs(p["realised_ns"]) for p in winners]
    wrong = [f"{p['program']} {p['remedy']}" for p in known if p["promised"][0] > 0 > p["realised_interval_ns"][1]]
    share, error = statistics.fmean(inside) if inside else None, statistics.median(errors) if errors else None
    return {
        "realised inside [low, ceiling] in at least 90 %": {"value": share, "met": share is None or share >= 0.9},
        f"of the {len(large)} where 3 % of the step and more is expected, gained or lost": {
            "value": statistics.fmean(large) if large else None, "met": not large or statistics.fmean(large) >= 0.9,
        },
        "median error of expected at most 20 % (where 3 % of the step and more is expected)": {
            "value": error, "met": error is None or error <= 0.2,
        },
        "intervals of promise and truth that do not meet": {"value": contradicted, "met": not contradicted},
        "no low above 0 where the remedy loses": {"value": wrong, "met": not wrong},
    }  # fmt: skip


def _inside(pair: dict[str, Any]) -> bool:
    """A loss is foretold by a ceiling of nothing, or by a low of nothing."""
    low, _, ceiling = pair["promised"]
    return bool(low <= max(0.0, pair["realised_ns"]) <= ceiling or (pair["realised_ns"] <= 0 and low <= 0))


def _contradicted(pair: dict[str, Any]) -> bool:
    """The 95 % interval of what was realised lies outside of what was promised."""
    low, _, ceiling = pair["promised"]
    return bool(max(0.0, pair["realised_interval_ns"][1]) < low or pair["realised_interval_ns"][0] > ceiling)


def row(pair: dict[str, Any]) -> str:
    """One line of the table, in shares of the step."""

    def shares(values: list[float] | None) -> str:
        return " / ".join(f"{100 * v / pair['step_ns']:.1f}" for v in values) if values else "-"

    verdict = "-" if not pair["promised"] else "inside" if _inside(pair) else "OUTSIDE"
    low, high = (100 * v / pair["step_ns"] for v in pair["realised_interval_ns"])
    loses = (
        f" (rehearsal: costs {100 * pair['change_ns'] / pair['step_ns']:.1f})" if (pair["change_ns"] or 0) > 0 else ""
    )
    return (f"| {pair['program']} | {pair['remedy']} | {pair['step_ns'] / 1e6:.0f} ms | {shares(pair['estimated'])} | "
            f"{shares(pair['promised'])}{loses} | {100 * pair['realised_ns'] / pair['step_ns']:.1f} ({low:.1f} to "
            f"{high:.1f}) | {verdict} |")  # fmt: skip


def table(found: dict[str, Any]) -> str:
    """The result as Markdown."""
    head = (
        f"# What rehearsals promised and what remedies brought, {found['date']}\n\n{found['cpu']}, {found['cores']} "
        f"cores, load {found['load']}, {found['threads']} threads. Python {found['python']}, torch {found['torch']}, "
        f"gobrrr {found['gobrrr']}. All in % of the step: low / expected / ceiling.\n\n"
        "| program | remedy | step | estimated | rehearsed | realised (95 %) | |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    told = "\n".join(f"- {'met' if b['met'] else 'MISSED'}: {text}: {b['value']}" for text, b in found["bars"].items())
    return head + "\n".join(map(row, found["pairs"])) + f"\n\n{told}\n"


if __name__ == "__main__":
    sys.exit(main())
