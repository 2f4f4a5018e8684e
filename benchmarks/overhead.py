"""What watching costs: the plain phase's hooks on and off in turn in one process, and the tool's own start-up.

    python -m benchmarks.overhead [--pairs 60]

Prints the ratio of step times with hooks to without (median of paired blocks, quartiles) beside what gobrrr itself
claims for the same steps, for a tiny, a small and a middling step; and import and --help times of fresh processes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.stamp import stamp
from gobrrr.capture.config import Config
from gobrrr.capture.overhead import costs
from gobrrr.capture.session import Session

STEPS = {"tiny": (16, 2, 8), "small": (64, 8, 64), "middling": (512, 6, 256)}
BARS = {"plain phase": 0.01, "import gobrrr": 0.100, "gobrrr --help": 0.200}


def program(width: int, depth: int, batch: int) -> Any:
    """A training step over a loader, as a function of the number of steps; returns ns per step."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(batch * 8, width)), batch_size=batch)

    def steps(count: int) -> float:
        done, began = 0, time.perf_counter_ns()
        while done < count:
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                done += 1
        return (time.perf_counter_ns() - began) / done

    return steps


def measure(name: str, pairs: int) -> dict[str, Any]:
    """Blocks with hooks and without in random ABBA order; the ratio of each pair."""
    run = program(*STEPS[name])
    count = max(8, int(0.05e9 / run(16)))
    plain, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Config(folder))
        session._boundary = session.recorder._on_boundary = lambda *_: None  # type: ignore[method-assign]  # no windows
        for _ in range(pairs):
            order = random.choice([(True, False, False, True), (False, True, True, False)])
            times: dict[bool, list[float]] = {True: [], False: []}
            for hooked in order:
                if hooked:
                    session.hooks.install()
                times[hooked].append(run(count))
                session.hooks.remove()
            ratios.append(sum(times[True]) / sum(times[False]))
            plain.append(statistics.mean(times[False]))
        session.end()
    quartiles = statistics.quantiles(ratios, n=4)
    step = statistics.median(plain)
    cost = session.hooks.cost()
    claimed = (cost["calls"] * cost["ns_per_call"] + cost["lookups"] * costs()["lookup_ns"]) / (2 * pairs * count)
    return {
        "step_ns": step, "ratio": statistics.median(ratios), "low": quartiles[0], "high": quartiles[2],
        "claimed": claimed / step, "pairs": pairs,
    }  # fmt: skip


def startup(words: list[str], rounds: int = 9) -> dict[str, float]:
    """Seconds of a fresh process, less those of a Python that does nothing, in turn."""
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        middle = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        spent.append((middle - began, 2 * middle - began - time.perf_counter()))
    return {"whole": statistics.median(a for a, _ in spent), "over_python": statistics.median(b for _, b in spent)}


def main() -> int:
    """Measure, print, and write benchmarks/results/overhead-<date>.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    pairs = parser.parse_args().pairs
    found: dict[str, Any] = {"stamp": stamp(), "bars": BARS, "steps": {}, "startup": {}}
    for name in STEPS:
        row = found["steps"][name] = measure(name, pairs)
        print(
            f"{name:9} step {row['step_ns'] / 1e6:8.3f} ms   hooks on/off {row['ratio']:.4f} "
            f"(quartiles {row['low']:.4f} to {row['high']:.4f}, {pairs} pairs)   claimed {100 * row['claimed']:.2f} %"
        )
    for name, words in (("import gobrrr", ["-c", "import gobrrr"]), ("gobrrr --help", ["-m", "gobrrr", "--help"])):
        row = found["startup"][name] = startup(words)
        print(f"{name:14} {1e3 * row['whole']:.0f} ms whole, {1e3 * row['over_python']:.0f} ms over a bare Python")
    target = Path(__file__).parent / "results" / f"overhead-{found['stamp']['date']}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
