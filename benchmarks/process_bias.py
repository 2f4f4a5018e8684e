"""How much do processes of one and the same arm differ? Memory layout and threads' places are drawn anew at each start.

    python -m benchmarks.process_bias [--processes 20] [--sweeps 60] [--threads 1] [PROGRAM ...]

All processes of a program live at once and take turns: in each sweep every one makes a block of 60 ms, in an order
drawn anew, while the others are stopped. What the machine does within a sweep falls on all of them; a process differs
from the others only where its blocks do so in sweep after sweep. Beside the wall clock the same is told of the CPU time
of its threads, which neighbours on the cores disturb less. To benchmarks/results/process-bias-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.quiet import Neighbours
from benchmarks.stamp import stamp
from gobrrr.trial.arm.arm import Arm
from gobrrr.trial.statistics.block_schedule import block_steps

PROGRAMS = Path(__file__).parent / "programs"
RESULTS = Path(__file__).parent / "results"
BLOCK_NS, WARM_STEPS = 60e6, 30
HALVES, RESAMPLES = 200, 1000
Floats = npt.NDArray[np.float64]


def main() -> int:
    """Measure program after program; the file is written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=["dispatch", "regression", "convolution", "transformer"])
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    args = parser.parse_args()
    found: dict[str, Any] = {"schema": "gobrrr.process-bias/1", **stamp(), "rows": []}
    file = RESULTS / f"process-bias-{found['date']}.json"
    for threads in args.threads:
        for name in args.programs:
            found["rows"].append(row(name, threads, args.processes, args.sweeps))
            file.write_text(json.dumps(found) + "\n", encoding="utf-8")
            print(json.dumps({k: v for k, v in found["rows"][-1].items() if k != "ns"}), flush=True)
    return 0


def row(name: str, threads: int, processes: int, sweeps: int) -> dict[str, Any]:
    """One program: the deviation of its processes by both clocks, and every block."""
    neighbours, began = Neighbours(), time.monotonic()
    walls, cpus, steps = sampled(PROGRAMS / f"{name}.py", threads, processes, sweeps)
    return {
        "program": name, "threads": threads, "step_ms": float(np.median(walls)) / steps / 1e6, "steps": steps,
        "wall": told(walls), "cpu": told(cpus), "others": neighbours.share(),
        "seconds": round(time.monotonic() - began, 1),
        "ns": {"wall": walls.astype(int).tolist(), "cpu": cpus.astype(int).tolist()},
    }  # fmt: skip


def sampled(script: Path, threads: int, processes: int, sweeps: int) -> tuple[Floats, Floats, int]:
    """ns of blocks by the wall and by the threads' CPU time, [process, sweep], and steps per block."""
    folder = Path(tempfile.mkdtemp(prefix="gobrrr-bias-"))
    env = {"OMP_NUM_THREADS": str(threads)}
    arms = [Arm([sys.executable, str(script)], folder / str(n), source=script.parent, env=env)
            for n in range(processes)]  # fmt: skip
    try:
        for arm in arms:
            arm.start()
            step_ns = float(np.median(arm.run(WARM_STEPS).walls[WARM_STEPS // 2 :]))
        steps = max(block_steps(step_ns, 0.0), math.ceil(BLOCK_NS / step_ns))
        walls, cpus = np.zeros((processes, sweeps)), np.zeros((processes, sweeps))
        order = random.Random(0)
        for sweep in range(-3, sweeps):  # the first ones are warm-up
            for n in order.sample(range(processes), processes):
                before = cpu_ns(arms[n])
                block = arms[n].run(steps)
                if sweep >= 0:
                    walls[n, sweep], cpus[n, sweep] = block.ns, cpu_ns(arms[n]) - before
    finally:
        for arm in arms:
            arm.end()
        shutil.rmtree(folder, ignore_errors=True)
    return walls, cpus, steps


def cpu_ns(arm: Arm) -> int:
    """What the threads of a stopped arm have run so far."""
    assert arm._process is not None
    tasks = Path(f"/proc/{arm._process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


def told(ns: Floats) -> dict[str, float]:
    """Per cent of a step: deviation between processes with its 95 % interval, and between blocks of one process."""
    logs = np.log(ns)
    logs -= np.median(logs, axis=0)
    rng = np.random.default_rng(0)
    drawn = [variance(logs[rng.integers(0, len(logs), len(logs))], rng, 4) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    spread = 1.4826 * float(np.median(np.abs(logs - np.median(logs, axis=1, keepdims=True))))
    return {"process_sd": percent(variance(logs, rng, HALVES)), "low": percent(float(low)),
            "high": percent(float(high)), "block_sd": 100 * spread}  # fmt: skip


def variance(logs: Floats, rng: np.random.Generator, halves: int) -> float:
    """Between processes: the covariance of their medians in two random halves of the sweeps. What differs from block to
    block is independent in the halves and falls out; medians leave bursts alone. Below zero where there is nothing."""
    found = []
    for _ in range(halves):
        mixed = rng.permutation(logs.shape[1])
        one, other = (np.median(logs[:, mixed[half::2]], axis=1) for half in (0, 1))
        found.append(float(np.cov(one, other)[0, 1]))
    return float(np.mean(found))


def percent(variance: float) -> float:
    """A deviation in per cent; 0 where the variance is estimated below zero."""
    return 100 * math.sqrt(max(0.0, variance))


if __name__ == "__main__":
    sys.exit(main())
