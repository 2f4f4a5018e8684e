"""Is what the arm of replayed batches says of the step with its batches ready right, and how much of the headspace does
a tuning reach?

    python -m benchmarks.headspace [--only NAME ...] [--minutes 3] [--suffix WORD]

Of each made pipeline the step is measured by hand, before and after: a process that keeps eight batches of the loader
and loops over them. Between the two `gobrrr tune` runs the same pipeline as a program (headspace_program.py). The real
ones (examples/photographs; benchmarks/pipelines: texts through transformers' Trainer, documents for a language model)
are tuned as they are; they need pillow, transformers and accelerate. loadtune is asked about the made ones where it is
installed (loadtune_peer.py): it makes the loader itself, which a program does not let it. Writes
benchmarks/results/headspace-DATE.json and .md, the receipts' figures in them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import loadtune_peer
from benchmarks.loadermodel import busy_seconds, own_seconds
from benchmarks.stamp import stamp

RESULTS, PROGRAM = Path(__file__).parent / "results", Path(__file__).parent / "headspace_program.py"
PIPELINES = ("skewed texts", "rows one by one", "augmented by NumPy")
"""Text of skewed lengths that is cut into words; tensors row by row; pictures that are cut, turned and noised."""
REAL = {
    "photographs": ["train.py", "--epochs", "100000"],
    "texts": ["texts.py", "100000"],
    "documents": ["documents.py", "100000"],
}
SCRIPTS = Path(__file__).parent / "pipelines"
EXAMPLE = Path(__file__).parents[1] / "examples" / "photographs" / "train.py"
KEPT, WARM_S, SECONDS, BLOCK_S = 8, 1.0, 4.0, 0.25
MS = 1e6


def by_hand(name: str) -> dict[str, float]:
    """ns of a step over kept batches, in this process: the median of blocks."""
    import torch
    from torch.utils.data import DataLoader

    from benchmarks.headspace_program import pipeline

    torch.manual_seed(0)
    parts = pipeline(name)
    batches = cycle(islice(iter(DataLoader(parts.dataset, shuffle=True, **parts.loader)), KEPT))
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        parts.compute(next(batches))
    before, own, began, blocks = busy_seconds(), own_seconds(), time.perf_counter(), []
    while (start := time.perf_counter()) < began + SECONDS:
        steps = 0
        while time.perf_counter() < start + BLOCK_S:
            parts.compute(next(batches))
            steps += 1
        blocks.append((time.perf_counter() - start) / steps * 1e9)
    lasted = time.perf_counter() - began
    return {"step": median(blocks), "others": max(0.0, busy_seconds() - before - (own_seconds() - own)) / lasted}


def in_a_process(name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.headspace", "--hand", name]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def tuned(name: str, minutes: float) -> dict[str, Any]:
    """What a tuning's receipt says, without its blocks."""
    with tempfile.TemporaryDirectory() as folder:
        words, work = (REAL[name], made(folder)) if name in REAL else ([str(PROGRAM), name], None)
        command = [sys.executable, "-m", "gobrrr", "tune", "--minutes", str(minutes), "-o", f"{folder}/out"]
        path = os.pathsep.join(filter(None, (str(PROGRAM.parents[1]), os.environ.get("PYTHONPATH"))))
        env = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": path}  # words are numbered by hash()
        ran = subprocess.run([*command, *words], env=env, cwd=work, capture_output=True, text=True)
        if not (left := Path(folder, "out", "receipt.json")).exists():
            raise SystemExit(f"{name}: no receipt, exit code {ran.returncode}\n{ran.stderr}")
        receipt = json.loads(left.read_text())
    told = {key: receipt[key] for key in ("kept", "options", "speedup", "step_ns", "seconds", "notes")}
    trials = [{key: each[key] for key in ("remedies", "options", "verdict", "speedup")} for each in receipt["trials"]]
    found = receipt["headspace"]
    headspace = {key: each for key, each in found.items() if key != "samples"} if found else None
    sweeps = len(found["samples"]["arm"]) // 4 if found and found["samples"] else 0
    return {**told, "guard": (receipt["guard"] or {}).get("verdict"), "exit_code": ran.returncode, "trials": trials,
            "headspace": headspace, "sweeps": sweeps, "told": ran.stdout.splitlines()[:1]}  # fmt: skip


def made(folder: str) -> Path:
    """The real pipelines and their pictures, in a folder of their own."""
    work = Path(shutil.copytree(SCRIPTS, Path(folder, "work")))
    shutil.copy(EXAMPLE, work)
    make = "import train; train.make(train.Path('pictures'))"
    subprocess.run([sys.executable, "-c", make], cwd=work, check=True)
    return work


def measured(name: str, minutes: float) -> dict[str, Any]:
    before = [] if name in REAL else [in_a_process(name)]
    load = os.getloadavg()[0]
    found = tuned(name, minutes)
    after = [] if name in REAL else [in_a_process(name)]
    peer = None
    if name not in REAL and find_spec("loadtune"):
        try:
            peer = loadtune_peer.beside(name)
        except RuntimeError as error:
            peer = {"failed": str(error)}
    return {"name": name, "load": load, "hand": before + after, "tune": found, "loadtune": peer}


def told_of_peer(peer: dict[str, Any] | None) -> str:
    """What loadtune's settings bring, and what it says of them."""
    if peer is None:
        return "not asked"
    if "failed" in peer:
        return str(peer["failed"])
    settings = ", ".join(f"{name}={value}" for name, value in peer["settings"].items()) or "nothing"
    brings = dict(zip(("value", "low", "high"), peer["brings"], strict=True))
    return f"{within(brings)}, says {peer['says']:.2f}: {settings}"


def within(figure: dict[str, float] | None, scale: float = 1.0) -> str:
    if figure is None:
        return ""
    return f"{figure['value'] / scale:.3g} ({figure['low'] / scale:.3g} to {figure['high'] / scale:.3g})"


def table(cases: list[dict[str, Any]], where: dict[str, Any], minutes: float) -> str:
    chip = f"{where['cpu']}, {where['cores']} cores, {where['date']}, torch {where['torch']}"
    lines = ["# The headspace: replayed batches beside a loop by hand, and what a tuning reaches of it", ""]
    command = f"OMP_WAIT_POLICY=PASSIVE python -m benchmarks.headspace --minutes {minutes:g}"
    lines += [f"{chip}; load {where['load']} at the start; `{command}`. C is the step with its batches ready.", ""]
    heads = ("pipeline", "step, ms", "C of the arm, ms", "C by hand before, after, ms", "others' cores by hand",
             "headspace, ms", "kept", "speed-up", "share of the headspace, %", "settings tried",
             "loadtune")  # fmt: skip
    lines += [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for case in cases:
        found, hand = case["tune"], case["hand"]
        space = found["headspace"] or {**dict.fromkeys(("compute_ns", "saved_ns", "reached")), "reason": "no wait"}
        gain = found["speedup"]
        kept = " + ".join(found["kept"]) + "".join(
            f" {each}" for name, each in found["options"].items() if name in found["kept"]
        )
        speedup = f"{gain['median']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" if gain else ""
        step = space.get("step_ns") or found["step_ns"] or 0.0
        row = (
            case["name"], f"{step / MS:.3g}", within(space["compute_ns"], MS) or space["reason"],
            ", ".join(f"{each['step'] / MS:.3g}" for each in hand), ", ".join(f"{each['others']:.2f}" for each in hand),
            within(space["saved_ns"], MS), kept or "nothing", speedup, within(space["reached"], 0.01),
            str(sum(bool(each["options"]) for each in found["trials"])), told_of_peer(case.get("loadtune")),
        )  # fmt: skip
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=(*PIPELINES, *REAL))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--hand", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hand:
        print(json.dumps(by_hand(args.hand)))
        return
    where, cases = stamp(), []
    name = f"headspace-{where['date'][:10]}{'-' + args.suffix if args.suffix else ''}"
    for pipeline in args.only:
        cases.append(measured(pipeline, args.minutes))
        told = {"about": where, "minutes": args.minutes, "cases": cases}
        (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
        (RESULTS / f"{name}.md").write_text(table(cases, where, args.minutes))
        print(table(cases[-1:], where, args.minutes).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
