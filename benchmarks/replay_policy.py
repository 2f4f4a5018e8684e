"""The race's policy, judged: kept tunings run again on a fake clock, each number at half and at double its value.

    python -m benchmarks.replay_policy [--only NAME ...] [--every 1]

A kept tuning (zoo-tunes and tuned) says which remedies were raced, what each brought, which never took hold and which
the guard refused. From that follow gains by least squares; a program's step and start are those of the kept zoo run.
Blocks are kept ones too: those of process-bias, whose processes differ as processes do, in their order. Promises are
the gains, off by as much as rehearsals were (28 % in the median). What no kept tuning holds is not replayed: loaders'
settings, memory, devices, starts that are late. To benchmarks/results/policy-DATE.md.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gobrrr.remedies import registry
from gobrrr.trial.race import policy
from gobrrr.trial.race.policy import POLICY, Policy

RESULTS = Path(__file__).parent / "results"
TUNINGS = ("zoo-tunes-2026-11-27-amx.json", "tuned-2026-11-26.json")
RUNS, BLOCKS = "zoo-2026-11-27-amx.json", "process-bias-2026-11-21.json"
OFF = 0.28 / 0.6745
"""Deviation of a promise's log from its gain's: the median error of rehearsal, results/rehearsed-zoo-2026-11-27."""
START_S, STEP_NS = 12.0, 2e8  # of a program that the zoo's run does not hold; medians of those that it holds
WORKERS = 2
NOT_REPLAYED = ("roomy", "overrun", "headroom", "loader", "loader_most", "first_step", "warmed_up", "narrow", "enough",
                "loader_worth", "loader_sweeps", "precise")  # fmt: skip
"""Numbers of which kept tunings hold too little: loaders' settings, starts that are late, more than four arms."""
Stack = tuple[str, ...]


class Kept(NamedTuple):
    """One kept tuning: log gains by remedy, those that never took hold, those that the guard refused."""

    name: str
    gains: dict[str, float]
    broken: tuple[str, ...]
    red: tuple[str, ...]
    step_ns: float
    start_s: float
    seconds: float


class Outcome(NamedTuple):
    """Sums over all replayed tunings: log of the true gain of what was kept, how many kept something, how many of them
    something that gains nothing, and the seconds; how many replays there were, none where the policy could not run."""

    gain: float
    kept: int
    useless: int
    seconds: float
    num: int
    """Replays; 0 where a race cannot be run so."""


def kept_tunings() -> list[Kept]:
    """All in which something was measured."""
    runs = {each["name"]: each["run"] for each in _read(RUNS)["programs"] if (each["run"] or {}).get("report")}
    found = []
    for each in (program for file in TUNINGS for program in _read(file)["programs"]):
        tune = each.get("tune") or each
        run = runs.get(each["name"])
        step = run["report"]["step"]["plain_wall_ns"] if run else tune.get("step_ns") or STEP_NS
        start = max(2.0, run["plain_s"] - run["clock"]["loop_s"]) if run and run.get("clock") else START_S
        gains = _gains(tune.get("trials") or [])
        if not gains:
            continue
        broken = {
            n for t in tune["trials"] if t["verdict"] == "failed" and len(t["remedies"]) == 1 for n in t["remedies"]
        }
        refused = [t for t in tune["trials"] if t["verdict"] == "faster" and t["speedup"] is None]
        red = {name for t in refused for name in t["remedies"]} - {*tune["kept"]} if tune["kept"] else set()
        found.append(Kept(each["name"], gains, tuple(sorted(broken)), tuple(sorted(red)), float(step), start,
                          60.0 * (tune.get("minutes") or 5.0) - 60.0))  # fmt: skip
    return found


def _read(file: str) -> Any:
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def _gains(trials: list[dict[str, Any]]) -> dict[str, float]:
    """Log gains of remedies from those of combinations: the least squares with the smallest gains, each row weighted by
    its interval."""
    names = sorted({name for trial in trials for name in trial["remedies"]})
    rows, logs = [], []
    for trial in trials:
        if (found := trial["speedup"]) is not None:
            middle, low, high = found.values() if isinstance(found, dict) else found
            weight = 1 / max(0.01, math.log(high / low))
            rows.append([weight * (name in trial["remedies"]) for name in names])
            logs.append(weight * math.log(middle))
    if not rows:
        return {}
    solved = np.linalg.lstsq(np.array(rows, float), np.array(logs), rcond=None)[0]
    return {name: float(gain) for name, gain in zip(names, solved, strict=True)}


def replayed(tuning: Kept, seed: int, blocks: list[list[float]]) -> tuple[Stack, float]:
    """What is kept of it now, and the seconds. `blocks`: of each kept process, over the program's median."""
    from gobrrr.rules.model.finding import Saving
    from gobrrr.trial.race.candidates import Candidate
    from tests.support.race_clock import FakeReferee, tuned

    stream = random.Random(f"{tuning.name} {seed}")

    class Machine:
        """Blocks of kept processes, one after the other."""

        now = 0.0

        def __init__(self) -> None:
            self._left = self._process()

        def block(self, step_ns: float, steps: int) -> float:
            ns = step_ns * steps * next(self._left)
            self.now += ns / 1e9
            return ns

        def _process(self) -> Iterator[float]:
            while True:
                process = stream.choice(blocks)
                middle = statistics.median(process)
                yield from (each / middle for each in process)

    class Referee(FakeReferee):
        def _off(self) -> float:
            return statistics.median(stream.choice(blocks))

    candidates = []
    for number, (name, gain) in enumerate(tuning.gains.items()):
        remedy = registry.remedy(name)
        saved = max(1 - math.exp(-gain), stream.uniform(0.0, 0.05)) * tuning.step_ns * math.exp(stream.gauss(0.0, OFF))
        candidates.append(Candidate(
            name, Saving(0.5 * saved, saved, min(2 * saved, tuning.step_ns)), frozenset(remedy.conflicts),
            risk=2 if remedy.precision or remedy.safety == "order" else int(remedy.safety != "exact"),
            overlaps=frozenset(remedy.overlaps), cause=f"c{number}", reorders=remedy.safety == "order",
        ))  # fmt: skip
    gains = {name: math.exp(gain) for name, gain in tuning.gains.items()}
    referee = Referee(gains, seed=seed, step_ns=tuning.step_ns, start_s=tuning.start_s, red=tuning.red,
                      broken=tuning.broken, guard_s=2 * tuning.start_s + 24 * tuning.step_ns / 1e9)  # fmt: skip
    referee.machine = Machine()  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        found = tuned(referee, candidates, Path(folder), seconds=tuning.seconds, seed=seed)
    return tuple(sorted(found.kept)), referee.clock()


def outcome(case: tuple[str, Any, int, int]) -> tuple[str, str, Outcome]:
    """Replay all tunings with one number changed, in a process whose modules have not read the policy yet."""
    name, value, seed, every = case
    if name:
        policy.POLICY = replace(POLICY, **{name: value})
    rows = _read(BLOCKS)["rows"]
    gain, kept, useless, seconds, num = 0.0, 0, 0, 0.0, 0
    for number, tuning in enumerate(kept_tunings()[::every]):
        row = min(rows, key=lambda each: abs(math.log(each["step_ms"] * 1e6 / tuning.step_ns)))
        whole = statistics.median(ns for process in row["ns"]["wall"] for ns in process)
        blocks = [[ns / whole for ns in process] for process in row["ns"]["wall"]]
        try:
            names, took = replayed(tuning, 1000 * seed + number, blocks)
        except (ArithmeticError, AssertionError, ValueError):
            return name, _said(value), Outcome(0.0, 0, 0, 0.0, 0)
        true = sum(tuning.gains[each] for each in names)
        gain, kept, seconds = gain + true, kept + bool(names), seconds + took
        useless += bool(names) and true <= POLICY.effect
        num += 1
    return name, _said(value), Outcome(gain, kept, useless, seconds, num)


def cases(only: list[str], every: int) -> list[tuple[str, Any, int, int]]:
    """The policy as it is from three seeds, then each number at half and at double its value."""
    found: list[tuple[str, Any, int, int]] = [("", "as it is", seed, every) for seed in range(3)]
    for field in fields(Policy):
        if field.name in NOT_REPLAYED or (only and field.name not in only):
            continue
        now = getattr(POLICY, field.name)
        found += [(field.name, value, 0, every) for value in (_times(now, 0.5), _times(now, 2.0)) if value != now]
    return found


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_times(each, factor) for each in value)
    changed = value * factor
    return max(1, round(changed)) if isinstance(value, int) else changed


def _said(value: Any) -> str:
    return (
        ", ".join(map(_said, value)) if isinstance(value, tuple) else value if isinstance(value, str) else f"{value:g}"
    )


def main() -> int:
    """Replay, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these numbers alone")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth of the kept tunings alone")
    args = parser.parse_args()
    for name in dict.fromkeys(name for tuning in kept_tunings() for name in tuning.gains):
        registry.remedy(name)  # torch is imported once; of the trial each process imports its own
    with multiprocessing.get_context("fork").Pool(WORKERS, maxtasksperchild=1) as pool:
        found = []
        for each in pool.imap(outcome, cases(args.only, args.every), chunksize=1):
            found.append(each)
            print(each[0], each[1], *each[2][:4], flush=True)
    text = table(found)
    from benchmarks.stamp import stamp

    if not args.only:
        (RESULTS / f"policy-{stamp()['date']}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def table(found: list[tuple[str, str, Outcome]]) -> str:
    """Markdown: how far each number moves the mean gain, what is kept, and the seconds."""
    plain, *others = [each for name, _, each in found if not name]
    num = plain.num
    spread = statistics.stdev(each.gain / num for each in (plain, *others)) if others else 0.0
    lines = [
        f"# The race's policy on {num} kept tunings", "",
        f"`python -m benchmarks.replay_policy`. As it is: geometric mean {math.exp(plain.gain / num):.3f}, something",
        f"kept in {plain.kept}, of no use in {plain.useless}, {plain.seconds / num:.0f} s each. Another seed moves it",
        f"by {100 * spread:.1f} % (one deviation). Not replayed, for want of what is kept:",
        f"{', '.join(NOT_REPLAYED)}.", "",
        "| number | value | mean gain | kept | of no use | seconds |", "|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for name, value, each in found:
        if not name:
            continue
        moved = f"{100 * (math.exp((each.gain - plain.gain) / num) - 1):+.1f} %"
        cells = (moved, each.kept, each.useless, round(each.seconds / num)) if each.num else ("no race", "", "", "")
        lines.append(f"| {' | '.join(map(str, (name, value, *cells)))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
