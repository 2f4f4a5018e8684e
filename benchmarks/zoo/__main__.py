"""Is gobrrr right on programs that nobody here wrote, and does it make them faster?

    python -m benchmarks.zoo [--truth] [--run] [--tune] [--peer] [--only NAME ...] [--minutes 5] [--rounds 1] [--anew]
                             [--picks FILE ...] [--out NAME]

`--truth`: each program under a clock that knows nothing of gobrrr, and beside it its twin mended by hand. `--run`:
`gobrrr run` on each, and the program alone. Neither of all: these two. `--tune`: `gobrrr tune` for so many minutes.
`--peer`: TraceML on each.
What is done is kept in .gobrrr/zoo.jsonl at once and not done again; --anew forgets it. `--picks`: beside it what the
remedies that people pick bring alone, of results of benchmarks.rehearsed_zoo. The result goes to
benchmarks/results/zoo-DATE.{json,md}, unless --only left some out; to NAME.{json,md} there with --out. What to install:
requirements.txt beside this file; what is missing is skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from benchmarks.zoo import running, scoring, table, tuning
from benchmarks.zoo.case import Case
from benchmarks.zoo.cases import CASES

DONE = Path(".gobrrr") / "zoo.jsonl"
RESULTS = Path(__file__).parents[1] / "results"
KINDS = ("truth", "run", "tune", "peer")

Row = dict[str, Any]


def main(words: Sequence[str] | None = None, cases: Sequence[Case] = CASES) -> int:
    """Do what is left, write, print; 1 where a bar is missed."""
    args = _arguments(words, cases)
    if args.anew:
        DONE.unlink(missing_ok=True)
    work = _work(args)
    chosen = [case for case in cases if not args.only or case.name in args.only]
    for case in chosen:
        for kind, do in work.items():
            _once(case, kind, do)
    rows = _read() + [row for file in args.picks for row in tuning.picked(file)]
    found = {"schema": "gobrrr.zoo/1", **stamp(), **table.summary(chosen, rows)}
    text = table.table(found)
    if args.out or not args.only:
        file = RESULTS / f"{args.out or 'zoo-' + found['date']}.json"
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(bar["met"] for bar in found["bars"].values()) else 1


def _arguments(words: Sequence[str] | None, cases: Sequence[Case]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "benchmarks.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for kind in KINDS:
        parser.add_argument(f"--{kind}", action="store_true", help=f"do this, and what else is named of {KINDS}")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[case.name for case in cases])
    parser.add_argument("--minutes", type=float, default=5.0, help="for each tuning")
    parser.add_argument("--rounds", type=int, default=1, help="pairs of a program and its mended twin")
    parser.add_argument("--anew", action="store_true", help="forget what was done")
    parser.add_argument("--picks", nargs="+", type=Path, default=[], metavar="FILE", help="with their single picks")
    parser.add_argument("--out", metavar="NAME", help="write it, whatever --only leaves out, to results/NAME")
    parser.add_argument("--table", action="store_true", help="do nothing; the table of what was done")
    return parser.parse_args(words)


def _work(args: argparse.Namespace) -> dict[str, Callable[[Case], Row]]:
    """What to do with each program, by kind."""

    work = {
        "truth": lambda case: running.truth(case, args.rounds), "run": running.watched,
        "tune": lambda case: tuning.tuned(case, args.minutes), "peer": running.asked,
    }  # fmt: skip
    named = [kind for kind in KINDS if getattr(args, kind)] or ["truth", "run"]
    return {} if args.table else {kind: work[kind] for kind in named}


def _once(case: Case, kind: str, do: Callable[[Case], Row]) -> None:
    """Do it unless it was done; a row of what came of it is kept at once."""
    if any(row["name"] == case.name and row["kind"] == kind for row in _read()):
        return
    row: Row = {"name": case.name, "kind": kind, "skipped": case.missing()}
    if not row["skipped"]:
        try:
            row.update(do(case))
        except (OSError, RuntimeError, ValueError) as error:
            row["failed"] = str(error)
    DONE.parent.mkdir(exist_ok=True)
    with DONE.open("a", encoding="utf-8") as file:
        print(json.dumps(row), file=file)
    print(_line(case, row), flush=True)


def _line(case: Case, row: Row) -> str:
    if row["skipped"] or row.get("failed"):
        return f"{case.name} {row['kind']}: {row.get('failed') or 'skipped, it needs ' + row['skipped']}"
    if row["kind"] == "run":
        missed = [bar for bar, held in scoring.score(case, row).items() if held is False]
        sentence = row["report"]["verdict"]["sentence"] if row["report"] else row["told"][-300:]
        clock = {key: (row["clock"] or {}).get(key) for key in ("steps", "step_ms", "phases", "ops")}
        return (
            f"{case.name} run: {'misses ' + ', '.join(missed) if missed else 'right'}: {sentence}\n    clock: {clock}"
        )
    shown = {key: row.get(key) for key in ("saved", "ratios", "speedup", "kept", "said", "right_phase") if key in row}
    return f"{case.name} {row['kind']}: {shown}"


def _read() -> list[Row]:
    return [json.loads(line) for line in DONE.read_text(encoding="utf-8").splitlines()] if DONE.exists() else []


if __name__ == "__main__":
    sys.exit(main())
