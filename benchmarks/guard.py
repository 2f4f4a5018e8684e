"""Does the numerics guard catch broken remedies, and leave good ones alone?

    python -m benchmarks.guard [--sabotages] [--honest] [--cost] [--only NAME ...] [--onset N] [--jobs 3]

Broken remedies (benchmarks/guard_sabotages) act from a drawn update on, in one program that trains and one that infers;
good ones (gobrrr's own) run on eleven kinds of net (benchmarks/guard_programs); both as entry points through the live
referee, as `gobrrr tune` asks it. `--cost` times the guard on BERT. Each case is kept in .gobrrr/guard-bench.jsonl as
soon as it is done (--anew forgets them); the result goes to benchmarks/results/guard-DATE.{json,md}, unless --only or
--onset left some out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.guard_table import bars, table
from benchmarks.stamp import stamp
from gobrrr.guard.reference.watched_steps import TWIN_SECONDS, TWIN_STEPS

HERE = Path(__file__).parent
DONE = Path(".gobrrr") / "guard-bench.jsonl"
HONEST = (
    "fused_optimizer", "malloc_thresholds", "intraop_threads", "compile", "sdpa_attention",
    "bf16_autocast", "loader_workers", "activation_checkpointing",
)  # fmt: skip
NETS = (
    "dropout", "batchnorm", "tied", "accumulation", "deep", "noisy", "high_rate", "diverging", "conv_dropout",
    "two_optimizers", "compiled",
)  # fmt: skip
CONTROLS = ("malloc_thresholds", "fused_optimizer")
"""On the sabotages' own program: where these were refused, catching would prove nothing."""
COST = ("fused_optimizer", "compile")
ONSETS = ((10, 19), (20, 28), (2, 9), (0, 1))
"""One onset is drawn from each, both ends included, out of the guard's thirty steps; what hides best comes first."""
SEED = 9
BYTES = 400 << 20
"""That a watched run is taken to hold."""
PATIENT_NS = 1e9 * TWIN_SECONDS / TWIN_STEPS
"""What is said of a plain step: the guard gives up after a multiple of it, and on a busy machine it must not; of longer
ones it would watch fewer than thirty."""


class Case(NamedTuple):
    """One question to the guard. `onset` is null for what is not broken."""

    kind: str
    name: str
    program: str
    onset: int | None = None

    @property
    def remedy(self) -> str:
        """Its name for the referee."""
        return self.name if self.onset is None else f"sabotage.{self.name}.{self.onset}"


def main() -> int:
    """Ask, write, print; 1 where a bar is missed."""
    args = _arguments()
    everything = not (args.sabotages or args.honest or args.cost)
    cases = [case for case in _cases(args.onset) if everything or getattr(args, case.kind)]
    cases = _chosen(cases, set(args.only or ()))
    if args.anew:
        DONE.unlink(missing_ok=True)
    rows = _asked(cases, args.jobs)
    found = {"schema": "gobrrr.guard-bench/1", **stamp(), "seed": SEED, "bars": bars(rows), "cases": rows}
    if not args.only and args.onset is None:
        file = HERE / "results" / f"guard-{found['date']}.json"
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(table(found), encoding="utf-8")
    print(table(found))
    return 0 if all(bar["met"] for bar in found["bars"].values()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sabotages", action="store_true", help="only these, and their controls")
    parser.add_argument("--honest", action="store_true", help="only good remedies on eleven nets")
    parser.add_argument("--cost", action="store_true", help="only the guard's seconds on BERT (needs transformers)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="sabotages or remedies, programs, or both")
    parser.add_argument("--onset", type=int, help="for all sabotages, in place of the drawn ones")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--anew", action="store_true", help="forget what was done")
    return parser.parse_args()


def _chosen(cases: list[Case], words: set[str]) -> list[Case]:
    """Cases of the programs among the words and of the names among them; all programs or names where none is."""
    programs = words & {case.program for case in cases}
    names = words - programs
    return [c for c in cases if (not programs or c.program in programs) and (not names or c.name in names)]


def _cases(onset: int | None) -> list[Case]:
    """All of them; those of a kind and program stand together."""
    return [*_sabotages(onset), *(Case("honest", name, net) for net in NETS for name in HONEST),
            *(Case("cost", name, "bert") for name in COST)]  # fmt: skip


def _sabotages(onset: int | None) -> list[Case]:
    from benchmarks.guard_sabotages import TABLE

    draw = random.Random(SEED)
    found = {Case("sabotages", name, "text"): (0, "") for name in CONTROLS}
    for fault in TABLE.values():
        for turn, span in enumerate(ONSETS):
            drawn = min(draw.randint(*span), fault.latest) if onset is None else onset
            found.setdefault(Case("sabotages", fault.name, fault.program, drawn), (turn, fault.program))
    return sorted(found, key=lambda case: found[case])  # each sabotage has had its turn before one has its second


def _asked(cases: list[Case], jobs: int) -> list[dict[str, Any]]:
    """A row for each case, asked now or taken from what was done before."""
    DONE.parent.mkdir(exist_ok=True)
    done = {(r["kind"], r["name"], r["program"], r["onset"]): r for r in _read()}
    left = [case for case in cases if tuple(case) not in done]
    place = Path(tempfile.mkdtemp(prefix="gobrrr-guard-"))
    try:
        _package(place / "site", left)
        with ProcessPoolExecutor(jobs) as pool, DONE.open("a", encoding="utf-8") as file:
            waiting = [pool.submit(_judged, share, place) for share in _shares(left)]
            for number, each in enumerate(as_completed(waiting), 1):
                for row in each.result():
                    done[row["kind"], row["name"], row["program"], row["onset"]] = row
                    print(json.dumps(row), file=file, flush=True)
                    print(f"{number}/{len(waiting)} {_line(row)}", flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return [done[tuple(case)] for case in cases]


def _read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in DONE.read_text(encoding="utf-8").splitlines()] if DONE.exists() else []


def _shares(cases: list[Case], most: int = 4) -> list[list[Case]]:
    """Few cases of one program each, so that progress is seen and kept; a worker keeps the program's own runs."""
    found: list[list[Case]] = []
    for case in cases:
        if found and len(found[-1]) < most and found[-1][0].program == case.program and case.kind != "cost":
            found[-1].append(case)
        else:
            found.append([case])
    return found


def _package(site: Path, cases: list[Case]) -> None:
    """A stranger's package whose entry points are the sabotages, for this process and its children."""
    from gobrrr.remedies.registry import ENTRY_POINT

    about = site / "sabotage-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sabotage\nVersion: 1\n")
    points = "".join(
        f"{c.remedy} = benchmarks.guard_sabotages:{c.name}__{c.onset}\n" for c in cases if c.onset is not None
    )
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINT}]\n{points}")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), str(HERE.parent)])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.path.insert(0, str(site))


_REFEREES: dict[str, Any] = {}


def _judged(cases: list[Case], place: Path) -> list[dict[str, Any]]:
    """In a worker, which keeps one referee for each program: the program's own runs are made once."""
    return [_row(case, place) for case in cases]


def _row(case: Case, place: Path) -> dict[str, Any]:
    before, began = _cpu_s(), time.monotonic()
    key = case.program if case.kind != "cost" else f"{case.program} {case.name}"  # each pays for all of its runs
    if key not in _REFEREES:
        _REFEREES[key] = _referee(case.program, place / f"{os.getpid()}-{len(_REFEREES)}")
    guarded = _REFEREES[key].guard((case.remedy,))
    return {
        **case._asdict(), "verdict": guarded.verdict, "green": guarded.green, "reason": next(iter(guarded.reasons), ""),
        "seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(_cpu_s() - before, 1),
    }  # fmt: skip


def _referee(program: str, place: Path) -> Any:
    from gobrrr.trial.race.referee import LiveReferee, Program

    shutil.copytree(HERE / ("models" if program == "bert" else "guard_programs"), place / "source")
    tail = ("--steps", "1000000") if program == "bert" else ()
    command = (sys.executable, f"{program}.py", *tail)
    return LiveReferee(Program(command, place / "source", PATIENT_NS, bytes=BYTES), place / "arms")


def _cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _line(row: dict[str, Any]) -> str:
    onset = "" if row["onset"] is None else f" from {row['onset']}"
    mark = "green " if row["green"] else "      "
    return f"{mark}{row['program']} {row['name']}{onset}: {row['verdict']} {row['seconds']} s {row['reason'][:90]}"


if __name__ == "__main__":
    sys.exit(main())
