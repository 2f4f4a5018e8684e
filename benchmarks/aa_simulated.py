"""False verdicts and power on a simulated clock, where what starts differ by and what the machine does is known.

    python -m benchmarks.aa_simulated [--trials 150]

Identical arms whose processes are off by 0 to 2 % of a step and by 14 %, under white noise, drift, bursts and load that
comes and goes; beside them the same arms started once, as it was done before; and planted effects. A trial has 90 s,
starting both arms takes 6 of them. To benchmarks/results/aa-simulated-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.trial.statistics import LEVEL, PROCESS_SD
from tests.unit.trial_clock import DRAWS, MACHINES, NoisyMachine, arms_trial, started_once

RESULTS = Path(__file__).parent / "results"
BIASES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.14)
EFFECTS = (1.03, 1.05, 1.1, 1.3)
WORKERS = 4


def main() -> int:
    """Simulate, print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=150, help="of each row")
    args = parser.parse_args()
    cases = [(1.0, bias, machine, draw, args.trials) for bias, machine, draw in product(BIASES, MACHINES, DRAWS)]
    cases += [(effect, bias, machine, "gauss", args.trials)
              for effect, bias, machine in product(EFFECTS, (0.0, 0.005, 0.01, 0.14), MACHINES)]  # fmt: skip
    with ProcessPoolExecutor(WORKERS) as pool:
        rows = list(pool.map(row, cases))
    for each in rows:
        print(json.dumps(each))
    bars = {
        "false verdicts at most 5 % up to a bias of 1 %": all(
            r["told"] <= LEVEL for r in rows if r["speedup"] == 1.0 and r["bias"] <= PROCESS_SD
        ),
        "no effect of 3 % or more is called equivalent": not any(
            r["verdicts"].get("equivalent") for r in rows if r["speedup"] != 1.0
        ),
    }
    found = {"schema": "gobrrr.aa-simulated/1", **stamp(), "num_trials": args.trials, "bars": bars, "rows": rows}
    file = RESULTS / f"aa-simulated-{found['date']}.json"
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(bars, indent=1))
    return 0 if all(bars.values()) else 1


def row(case: tuple[float, float, str, str, int]) -> dict[str, Any]:
    """Verdicts of many trials, the rounds and seconds that they took; for identical arms also those started once."""
    speedup, bias, machine, draw, num = case
    verdicts: Counter[str] = Counter()
    once: Counter[str] = Counter()
    rounds, seconds = [], []
    for seed in range(num):
        clock = NoisyMachine(seed, **MACHINES[machine])
        found = arms_trial(clock, speedup, seed, bias=bias, draw=DRAWS[draw])
        verdicts[found.result().verdict] += 1
        rounds.append(len(found.logs))
        seconds.append(clock.now)
        if speedup == 1.0 and draw == "gauss":
            once[started_once(NoisyMachine(seed, **MACHINES[machine]), seed, bias, DRAWS[draw]).verdict] += 1
    return {
        "speedup": speedup, "bias": bias, "machine": machine, "draw": draw, "verdicts": dict(verdicts),
        "told": (verdicts["faster"] + verdicts["slower"]) / num,
        "told_when_started_once": (once["faster"] + once["slower"]) / num if once else None,
        "rounds": statistics.mean(rounds), "seconds": round(statistics.mean(seconds), 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
