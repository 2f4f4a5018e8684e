"""What watching costs: the product with its own rests against no hooks at all, in turn in one process; and start-up.

    python -m benchmarks.overhead [--seconds 90]

The product goes its own way, stretch and rest; within a rest, segments of 40 ms without any hook are put in turn with
those that have one, and the stretch is held against the segments next to it: on a machine whose speed drifts by a tenth
within seconds, whole rests differ by more than what is asked. Prints the share that watching adds, median of the cycles
with its 95 % interval and quartiles, by this thread's CPU time, its parts, and what the report claims of the same run;
and import and --help times.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.stamp import stamp
from gobrrr.capture.process.config import Config
from gobrrr.capture.session import recorder
from gobrrr.capture.session.session import Session
from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.ledger.steps.watching_cost import Watching, watching
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.run_folder.run import load_run

STEPS = {"tiny": (16, 1, 8), "small": (64, 12, 64), "middling": (256, 4, 256)}
BATCHES, WARM_RESTS, MIN_CYCLES = 8, 8, 6
SEGMENT_NS = 40_000_000  # a longer break would be a gap to the rest (pulse.GAP_NS)
LONGEST_NS = 2_000_000_000
BARS = {"tiny": 0.03, "small": 0.01, "middling": 0.01, "claim": 0.2, "import gobrrr": 0.100, "gobrrr --help": 0.200}


def program(width: int, depth: int, batch: int, device: str = "cpu") -> Callable[[], None]:
    """A training loop over a loader: each call makes one step."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(batch * BATCHES, width)), batch_size=batch)

    def batches() -> Iterator[torch.Tensor]:
        while True:
            for (x,) in loader:
                yield x.to(device)

    endless = batches()

    def step() -> None:
        optimizer.zero_grad()
        model(next(endless)).square().mean().backward()
        optimizer.step()

    return step


class Watched:
    """A session whose windows are done. A cycle is a stretch with every hook and the rest behind it."""

    def __init__(self, folder: str, step: Callable[[], None]) -> None:
        self.session, self._step = Session(Config(folder, plain_ns=100_000_000, sample_ns=100_000_000)), step
        self._unseen = 0
        recorder.thread_time_ns = lambda: time.thread_time_ns() - self._unseen  # type: ignore[attr-defined]
        self.session.begin()
        self.began = time.perf_counter_ns()
        while self.rests < WARM_RESTS:
            step()
        self._segment = max(1, int(SEGMENT_NS / self.session.rests._paces[self.session.rests._loop].step_ns))

    @property
    def rests(self) -> int:
        """Rests that are over."""
        return sum(pacing.rests for pacing in self.session.rests._paces.values())

    def cycle(self) -> Cycle:
        """The rest at hand in segments, in turn with and without its hook, then the stretch behind it until the next
        rest is settled: its first segment is the one in which the hooks come back."""
        rests, resting, bare, settled = self.rests, [], [], self.session.rests._pulse
        while True:
            timer = Timer()
            self._steps()
            if self.rests != rests:
                break
            resting.append(timer.ns / self._segment)
            bare.append(self._bare())
        count = self._segment
        while ev.RESTED not in self.session.rests._read and timer.ns < LONGEST_NS:  # rests of few steps are not read
            self._step()
            count += 1
        stretch = timer.ns
        near = math.ceil(count / 2 / self._segment)
        behind = []
        for _ in range(near):
            behind.append(self._bare())
            self._step()  # so long without a step would be a gap, which ends a rest
        usual = statistics.mean([*bare[-near:], *behind])
        rested = len(settled.times) if settled is not None else 0
        beat = statistics.mean(x - y for x, y in zip(resting, bare, strict=True)) if bare else 0.0
        return Cycle(usual, count, stretch - count * usual, rested, beat)

    def _steps(self) -> None:
        for _ in range(self._segment):
            self._step()

    def _bare(self) -> float:
        """ns per step of a segment without anything of ours in torch's tables or the collector's."""
        seats = [update.handle for update in self.session.hooks._updates]
        held = [(handle.hooks_dict_ref(), handle.id) for handle in seats]
        hooks = [table.pop(number) for table, number in held if table is not None]
        self.session.recorder.collections.remove()
        whole = Timer()
        self._step()
        timer = Timer()
        self._steps()
        took = timer.ns / self._segment
        self._unseen += whole.ns
        self.session.recorder.collections.install()
        for (table, number), hook in zip(held, hooks, strict=True):
            table[number] = hook
        return took

    def claim(self, folder: str) -> Watching | None:
        """What the report says of the steps since the beginning."""
        self.session.end()
        recording = load_run(Path(folder))[0]
        events = recording.events[recording.events[:, 0] >= self.began]
        return watching(dataclasses.replace(recording, events=events, loops=tuple(find_loops(events))))


class Cycle(NamedTuple):
    """CPU ns; what watching adds to steps without hooks close by."""

    usual: float
    """Per step without hooks."""
    stretch: int
    """Steps, those of the segments at its ends with it."""
    added: float
    """By the whole stretch, hooks put in and taken out and the rest's notes written."""
    rested: int
    """Steps of the rest."""
    beat: float
    """By each step of the rest."""

    @property
    def share(self) -> float:
        """Of the program's time."""
        return (self.added + self.rested * self.beat) / self.usual / (self.stretch + self.rested)


class Timer:
    """This thread's CPU time from its making on."""

    def __init__(self) -> None:
        self._began = time.thread_time_ns()

    @property
    def ns(self) -> int:
        """So far."""
        return time.thread_time_ns() - self._began


def measure(name: str, seconds: float, device: str = "cpu") -> dict[str, Any]:
    """Cycles for so long."""
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(folder, program(*STEPS[name], device))
        began, cycles = time.perf_counter(), []
        while len(cycles) < MIN_CYCLES or time.perf_counter() - began < seconds:
            watched.session._tail_from, watched.session._tail_steps = 0, 0  # it has never watched enough
            cycles.append(watched.cycle())
        claim = watched.claim(folder)
    return {
        "step_ns": statistics.median(cycle.usual for cycle in cycles),
        "cost": told([cycle.share for cycle in cycles]),
        "beat_ns": told([cycle.beat for cycle in cycles]),
        "watched_step_ns": told([cycle.added / cycle.stretch for cycle in cycles]),
        "claimed": claim and dict(zip(("share", "low", "high", "hooked"), claim, strict=True)),
        "cycles": len(cycles),
    }  # fmt: skip


def told(values: list[float]) -> dict[str, float]:
    """Their median, its 95 % interval, quartiles."""
    low, high = median_interval(values)
    first, middle, last = statistics.quantiles(values, n=4)
    return {"median": middle, "low": low, "high": high, "p25": first, "p75": last}


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
        print(f"{name:9} step {row['step_ns'] / 1e6:.3f} ms, {row['cycles']} cycles")
        form = "   {:9} {median:.2f} ({low:.2f} to {high:.2f}; quartiles {p25:.2f} to {p75:.2f}) {}"
        for label, key, unit, text in (
            ("cost", "cost", 0.01, "%"),
            ("in rest", "beat_ns", 1e3, "us per step"),
            ("watched", "watched_step_ns", 1e3, "us per step"),
        ):
            print(form.format(label, text, **{name: value / unit for name, value in row[key].items()}))
        if claim := row["claimed"]:
            shares = {key: f"{100 * value:.2f}" for key, value in claim.items()}
            print("   claim     {share} % ({low} to {high} %), with hooks {hooked} %".format(**shares))
    for name, words in (("import gobrrr", ["-c", "import gobrrr"]), ("gobrrr --help", ["-m", "gobrrr", "--help"])):
        row = found["startup"][name] = startup(words)
        print(f"{name:14} {1e3 * row['whole']:.0f} ms whole, {1e3 * row['over_python']:.0f} ms over a bare Python")
    target = Path(__file__).parent / "results" / f"overhead-{found['stamp']['date']}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
