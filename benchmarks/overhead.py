"""What watching costs: the product with its own rests against no hooks at all, in turn in one process; and start-up.

    python -m benchmarks.overhead [--seconds 90]

A pair is one watched stretch with the rest behind it, and as many steps with every hook out. Prints the ratio of all
steps to all, and the median of the paired ratios with its 95 % interval and the quartiles, by this thread's CPU time
(on a shared machine strangers make any wall time longer) and by the clock, beside what the report claims of the same
steps; and import and --help times.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.stamp import stamp
from gobrrr.capture.config import Config
from gobrrr.capture.rests import SETTLED
from gobrrr.capture.session import Session
from gobrrr.ledger.intervals import median_interval
from gobrrr.ledger.watching import Watching, watching
from gobrrr.recording import marks as ev
from gobrrr.recording.run import load_run
from gobrrr.recording.steps import find_loops

STEPS = {"tiny": (16, 1, 8), "small": (64, 12, 64), "middling": (320, 6, 256)}
BATCHES, WARM_RESTS, MIN_PAIRS = 8, 8, 6
BARS = {"tiny": 0.03, "small": 0.01, "middling": 0.01, "claim": 0.2, "import gobrrr": 0.100, "gobrrr --help": 0.200}

Times = tuple[float, float]


def program(width: int, depth: int, batch: int) -> Callable[[], None]:
    """A training loop over a loader: each call makes one step."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(batch * BATCHES, width)), batch_size=batch)

    def batches() -> Iterator[torch.Tensor]:
        while True:
            for (x,) in loader:
                yield x

    endless = batches()

    def step() -> None:
        optimizer.zero_grad()
        model(next(endless)).square().mean().backward()
        optimizer.step()

    return step


class Watched:
    """A session whose windows are done, taken up and laid down at will."""

    def __init__(self, folder: str, step: Callable[[], None]) -> None:
        self.session, self.step = Session(Config(folder, plain_ns=100_000_000, sample_ns=100_000_000)), step
        self.session.begin()
        while self.rests < WARM_RESTS:
            step()
        self.session.hooks.remove()
        self.began = time.perf_counter_ns()

    @property
    def rests(self) -> int:
        """Rests that are over."""
        return sum(pacing.rests for pacing in self.session.rests._paces.values())

    def cycle(self) -> tuple[int, Times]:
        """One stretch and the rest behind it, to where the hooks come back: (steps, their times)."""
        rests, count, before = self.session.rests, 0, self.rests
        self.session.hooks.install()
        rests._steps, rests._read, rests._last = 0, {}, time.perf_counter_ns()
        rests._reading(ev.WAKING)
        timer = Timer()
        while self.rests == before:
            self.step()
            count += 1
        took = timer.per(count)
        self.session.hooks.remove()
        return count, took

    def claim(self, folder: str) -> Watching | None:
        """What the report says of the steps since the first pair."""
        self.session.end()
        recording = load_run(Path(folder))[0]
        events = recording.events[recording.events[:, 0] >= self.began]
        return watching(dataclasses.replace(recording, events=events, loops=tuple(find_loops(events))))


class Timer:
    """CPU and wall time from its making on."""

    def __init__(self) -> None:
        self._began = time.thread_time_ns(), time.perf_counter_ns()

    def per(self, count: int) -> Times:
        """ns per step."""
        cpu, wall = self._began
        return (time.thread_time_ns() - cpu) / count, (time.perf_counter_ns() - wall) / count


def unwatched(step: Callable[[], None], count: int) -> Times:
    """ns per step of as many steps without hooks, once the change is no longer felt."""
    for _ in range(SETTLED):
        step()
    timer = Timer()
    for _ in range(count):
        step()
    return timer.per(count)


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Pairs for so long, the unwatched half before and half after; the ratio of each."""
    step = program(*STEPS[name])
    counts, off, on = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(folder, step)
        count, _ = watched.cycle()
        began = time.perf_counter()
        while len(off) < MIN_PAIRS or time.perf_counter() - began < seconds:
            before = unwatched(step, count // 2)
            count, took = watched.cycle()
            after = unwatched(step, count // 2)
            counts.append(count)
            off.append([(x + y) / 2 for x, y in zip(before, after, strict=True)])
            on.append(took)
        claim = watched.claim(folder)
    return {
        "step_ns": statistics.median(cpu for cpu, _ in off), "wall_ns": statistics.median(wall for _, wall in off),
        **{clock: told(counts, [x[n] for x in on], [x[n] for x in off]) for n, clock in enumerate(("cpu", "wall"))},
        "claimed": claim and dict(zip(("share", "low", "high", "hooked"), claim, strict=True)), "pairs": len(off),
    }  # fmt: skip


def told(counts: list[int], on: list[float], off: list[float]) -> dict[str, float]:
    """Ratio of all steps to all; median of the pairs' ratios, its 95 % interval, quartiles."""
    ratios = [x / y for x, y in zip(on, off, strict=True)]
    whole = sum(n * x for n, x in zip(counts, on, strict=True)) / sum(n * x for n, x in zip(counts, off, strict=True))
    low, high = median_interval(ratios)
    first, middle, last = statistics.quantiles(ratios, n=4)
    return {"whole": whole, "median": middle, "low": low, "high": high, "p25": first, "p75": last}


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
    parser.add_argument("--seconds", type=float, default=90, help="for each of the three programs")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    found: dict[str, Any] = {"stamp": stamp(), "bars": BARS, "steps": {}, "startup": {}}
    for name in STEPS:
        row = found["steps"][name] = measure(name, seconds)
        print(f"{name:9} step {row['step_ns'] / 1e6:.3f} ms, {row['pairs']} pairs")
        for clock in ("cpu", "wall"):
            shares = {key: f"{100 * (value - 1):.2f}" for key, value in row[clock].items()}
            print(
                "   {:5} {whole} %; of pairs {median} % ({low} to {high} %; quartiles {p25} to {p75} %)".format(
                    clock, **shares
                )
            )
        if claim := row["claimed"]:
            shares = {key: f"{100 * value:.2f}" for key, value in claim.items()}
            print("   claim {share} % ({low} to {high} %), with hooks {hooked} %".format(**shares))
    for name, words in (("import gobrrr", ["-c", "import gobrrr"]), ("gobrrr --help", ["-m", "gobrrr", "--help"])):
        row = found["startup"][name] = startup(words)
        print(f"{name:14} {1e3 * row['whole']:.0f} ms whole, {1e3 * row['over_python']:.0f} ms over a bare Python")
    target = Path(__file__).parent / "results" / f"overhead-{found['stamp']['date']}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
