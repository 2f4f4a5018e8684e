"""Does the measurement see what is not there? The untouched program against itself, many times, and planted effects.

    python -m benchmarks.aa [--trials 40] [--seconds 30] [--slowed 0.1]

Every trial compares two arms as `gobrrr prove` does, each started three times at least, with accounts and whole time.
With --slowed, the baseline's steps are made that share longer by a sleep in the program, and the trials say how often
the effect is found. Results are added to benchmarks/results/aa-DATE.json after every trial: a run that is cut off keeps
what it has.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.quiet import Neighbours
from benchmarks.stamp import stamp
from gobrrr.trial.arm.arm import Arm
from gobrrr.trial.arm.side import Side
from gobrrr.trial.race.lockstep import measure
from gobrrr.trial.statistics.objective import WHOLE

PROGRAM = Path(__file__).parent / "programs" / "regression.py"
RESULTS = Path(__file__).parent / "results"
SLOW = """
import collections, statistics, time
import torch.optim.optimizer as _o
_last, _own = [time.perf_counter()], collections.deque(maxlen=11)
def _sleep(*_):
    now = time.perf_counter()
    _own.append(now - _last[0])
    end = now + SHARE * statistics.median(_own)  # not of this step: it may have stood still while the other arm ran
    while time.perf_counter() < end:
        pass
    _last[0] = time.perf_counter()
_o.register_optimizer_step_post_hook(_sleep)
"""


def main() -> int:
    """Run trials, print the shares of each verdict; 1 where the bar of 5 % is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=30.0, help="most time for a trial, its starts among it")
    parser.add_argument("--slowed", type=float, default=0.0, help="make the baseline's steps this share longer")
    args = parser.parse_args()
    file = RESULTS / f"aa{'-slowed' if args.slowed else ''}-{stamp()['date']}.json"
    trials: list[dict[str, Any]] = []
    for number in range(args.trials):
        trials.append(trial(number, args.seconds, args.slowed))
        file.write_text(json.dumps(summary(trials, args), indent=1) + "\n", encoding="utf-8")
        print(f"{number + 1:4d}  {trials[-1]['verdict']:<13} {trials[-1].get('median', 0):.4f}", flush=True)
    found = summary(trials, args)
    print(json.dumps({k: v for k, v in found.items() if k != "trials"}, indent=1))
    return 0 if found["bar_met"] else 1


def trial(number: int, seconds: float, slowed: float) -> dict[str, Any]:
    """One comparison of two arms."""
    folder = Path(tempfile.mkdtemp(prefix="gobrrr-aa-"))
    source = folder / "source"
    source.mkdir()
    text = PROGRAM.read_text(encoding="utf-8")
    for name, share in (("baseline", slowed), ("candidate", 0.0)):
        (source / f"{name}.py").write_text(SLOW.replace("SHARE", str(share)) + text if share else text)
    neighbours, began = Neighbours(), time.monotonic()
    try:
        sides = [
            Side(partial(arm, source / f"{name}.py", source, remedies), folder / name, remedies)
            for name, remedies in (("baseline", ()), ("candidate", ()))
        ]
        found = measure(*sides, seed=number, seconds=seconds, objective=WHOLE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    speed = found.speedup
    figures = {"median": speed.median, "low": speed.low, "high": speed.high} if speed is not None else {}
    return {"verdict": found.verdict, "reason": found.reason, **figures, "blocks": len(found.samples.arm),
            "rounds": max(found.samples.round, default=0),
            "seconds": round(time.monotonic() - began, 1), "others": neighbours.share()}  # fmt: skip


def arm(script: Path, source: Path, remedies: tuple[str, ...], folder: Path) -> Arm:
    """An arm of one of the two scripts."""
    return Arm([sys.executable, str(script)], folder, remedies, source=source, objective=WHOLE, account=True)


def summary(trials: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """Shares of verdicts, how the ratios scatter, and the bar."""
    verdicts = Counter(t["verdict"] for t in trials)
    told = verdicts["faster"] + verdicts["slower"]
    medians = sorted(t["median"] for t in trials if "median" in t)
    quartiles = statistics.quantiles(medians, n=4) if len(medians) > 1 else medians
    wanted = verdicts["faster"] + verdicts["inconclusive"] if args.slowed else len(trials) - told
    return {
        "schema": "gobrrr.aa/1", **stamp(), "slowed": args.slowed, "num_trials": len(trials),
        "verdicts": dict(verdicts),
        "told_faster_or_slower": told / len(trials), "ratio_quartiles": quartiles,
        "bar": "faster or inconclusive in at least 95 %" if args.slowed else "faster or slower in at most 5 %",
        "bar_met": wanted / len(trials) >= 0.95, "trials": trials,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
