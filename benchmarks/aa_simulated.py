"""False verdicts and power on a simulated clock, where what starts differ by and what the machine does is known.

    python -m benchmarks.aa_simulated [--trials 150] [--only trials|races]

Identical arms whose processes are off by 0 to 2 % of a step and by 14 %, under white noise, drift, bursts and load that
comes and goes; beside them the same arms started once, as it was done before; and planted effects. A trial has 90 s,
starting both arms takes 6 of them. Whole races of `gobrrr tune` as well: six remedies that do nothing, and six of which
three help, in 300 s. To benchmarks/results/aa-simulated-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.rules.model.finding import Saving
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.statistics.paired import LEVEL, PROCESS_SD
from tests.support.race_clock import FakeReferee, tuned
from tests.support.trial_clock import DRAWS, MACHINES, NoisyMachine, arms_trial, started_once

RESULTS = Path(__file__).parent / "results"
BIASES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.14)
EFFECTS = (1.03, 1.05, 1.1, 1.3)
WORKERS = 4


def main() -> int:
    """Simulate, print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=150, help="of each row")
    parser.add_argument("--only", choices=("trials", "races"), help="one of the two parts")
    args = parser.parse_args()
    rows = [] if args.only == "races" else in_parallel(row, trial_cases(args.trials))
    races = [] if args.only == "trials" else in_parallel(race_row, race_cases(args.trials))
    for each in (*rows, *races):
        print(json.dumps(each))
    bars = bars_of(rows, races)
    found = {"schema": "gobrrr.aa-simulated/2", **stamp(), "num_trials": args.trials, "bars": bars, "rows": rows,
             "races": races}  # fmt: skip
    file = RESULTS / f"aa-simulated{f'-{args.only}' if args.only else ''}-{found['date']}.json"
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(bars, indent=1))
    return 0 if all(bars.values()) else 1


def in_parallel(made: Callable[[Any], dict[str, Any]], cases: list[Any]) -> list[dict[str, Any]]:
    """Rows of cases, in their order."""
    with ProcessPoolExecutor(WORKERS) as pool:
        return list(pool.map(made, cases))


def trial_cases(num: int) -> list[tuple[float, float, str, str, int]]:
    """Identical arms under every bias, machine and draw; planted effects."""
    cases = [(1.0, bias, machine, draw, num) for bias, machine, draw in product(BIASES, MACHINES, DRAWS)]
    return cases + [(effect, bias, machine, "gauss", num)
                    for effect, bias, machine in product(EFFECTS, (0.0, 0.005, 0.01, 0.14), MACHINES)]  # fmt: skip


def race_cases(num: int) -> list[tuple[bool, bool, float, str, int]]:
    """Races of what does nothing, and of what helps, promised by findings or not, under every bias and machine."""
    return [(*case, num) for case in product((False, True), (False, True), BIASES, MACHINES)]


def bars_of(rows: list[dict[str, Any]], races: list[dict[str, Any]]) -> dict[str, bool]:
    """The bars on what was simulated."""
    return {
        "false verdicts at most 5 % up to a bias of 1 %": all(
            r["told"] <= LEVEL for r in rows if r["speedup"] == 1.0 and r["bias"] <= PROCESS_SD
        ),
        "no effect of 3 % or more is called equivalent": not any(
            r["verdicts"].get("equivalent") for r in rows if r["speedup"] != 1.0
        ),
        "races of what does nothing recommend something in at most 5 %": all(
            r["recommended"] <= LEVEL for r in races if not r["helps"]
        ),
    }


def race_row(case: tuple[bool, bool, float, str, int]) -> dict[str, Any]:
    """What whole tunings recommend: how often anything, which share of those that help, what rides along, how long."""
    helps, promised, bias, machine, num = case
    gains = {"r0": 1.3, "r1": 1.1, "r2": 1.05} if helps else {}
    candidates = [Candidate(f"r{n}", Saving(0.0, 5e6, 1e7), cause=f"c{n}" if promised else "") for n in range(6)]
    kept, seconds = [], []
    for seed in range(num):
        referee = FakeReferee(gains, seed=seed, bias=bias, machine=MACHINES[machine])
        with tempfile.TemporaryDirectory() as folder:
            kept.append(tuned(referee, candidates, Path(folder), seed=seed).kept)
        seconds.append(referee.clock())
    return {
        "helps": helps, "promised": promised, "bias": bias, "machine": machine,
        "recommended": sum(map(bool, kept)) / num,
        "found": {name: sum(name in each for each in kept) / num for name in gains},
        "rides_along": sum(name not in gains for each in kept for name in each) / (num * (6 - len(gains))),
        "seconds": round(statistics.mean(seconds), 1), "longest": round(max(seconds), 1),
    }  # fmt: skip


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
