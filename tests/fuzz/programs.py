"""Run drawn programs plain and watched and show what differs:

python -m tests.fuzz.programs --seed 17              one; --show prints it, --shrink drops pieces that are no cause
python -m tests.fuzz.programs --pieces "recurrent,alarms"   these pieces, all others the plainest
python -m tests.fuzz.programs --each                every piece alone
python -m tests.fuzz.programs --seeds 0 200         many programs

--keep FOLDER keeps the program, to be started by hand. Exits with the number of programs that differ, at most 100.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import grammar
from tests.fuzz.grammar import Program, draw
from tests.fuzz.twice import Pair, Twice

MOST_DRAWS = 4
PLAIN_RUNS = 2
"""How often a program that differs is run plain again, to see whether it differs from itself."""


@dataclass(frozen=True)
class Verdict:
    """`difference` is empty where both runs are the same; `unsteady`: the plain runs differ among themselves."""

    program: Program
    pair: Pair
    difference: str
    unsteady: bool
    seed: int | None


def judge(program: Program, twice: Twice, seed: int | None = None) -> Verdict:
    """Run it plain and watched; where that differs, plain again."""
    source = program.source()
    pair = twice.pair(source, program.plain_ms)
    difference = "\n".join([*filter(None, [pair.difference()]), *pair.failures])
    unsteady = bool(difference) and any(twice.plain(source) != pair.plain for _ in range(PLAIN_RUNS))
    return Verdict(program, pair, difference, unsteady, seed)


def judge_seed(seed: int, twice: Twice) -> list[Verdict]:
    """The seed's program, and those drawn in its place while their plain runs differ; the last one counts."""
    verdicts: list[Verdict] = []
    while not verdicts or (verdicts[-1].unsteady and len(verdicts) < MOST_DRAWS):
        number = seed + 1_000_000 * len(verdicts)
        verdicts.append(judge(draw(number), twice, number))
    return verdicts


def shrink(program: Program, twice: Twice) -> Verdict:
    """Drop one piece after the other as long as the two runs differ."""
    least = judge(program, twice)
    for name in reversed(program.pieces):
        if name not in least.program.pieces:
            continue
        fewer = judge(least.program.without(name), twice)
        if fewer.difference and not fewer.unsteady:
            least = fewer
    return least


def told(verdict: Verdict) -> str:
    """A verdict in words."""
    pair, program, seed = verdict.pair, verdict.program, verdict.seed
    said = "unsteady in plain runs" if verdict.unsteady else "DIFFERS" if verdict.difference else "same"
    head = f"{'' if seed is None else f'seed {seed}: '}{said}; {', '.join(program.pieces)}"
    head += f"; {program.steps} steps, exit {pair.plain.code}, windows {', '.join(sorted(pair.windows)) or 'none'}"
    again = "" if seed is None else f"\nto repeat: python -m tests.fuzz.programs --seed {seed} --shrink"
    return f"{head}\n{verdict.difference}{again}" if verdict.difference else head


def chosen(options: argparse.Namespace) -> Iterator[tuple[int | None, Program]]:
    """The programs that the command line asks for."""
    if options.each:
        grammar.of_slot(grammar.EXTRA)
        yield from ((None, Program((name,))) for name in grammar.PIECES)
    elif options.pieces:
        yield None, Program(tuple(name.strip() for name in options.pieces.split(",")))
    else:
        first, last = (options.seed, options.seed + 1) if options.seed is not None else options.seeds
        yield from ((seed, draw(seed)) for seed in range(first, last))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 10))
    parser.add_argument("--pieces")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        twice = Twice(options.keep or Path(folder))
        return min(100, sum(_one(seed, program, twice, options) for seed, program in chosen(options)))


def _one(seed: int | None, program: Program, twice: Twice, options: argparse.Namespace) -> bool:
    if options.show:
        print(program.source())
    verdict = judge(program, twice, seed)
    print(told(verdict), flush=True)
    if options.shrink and verdict.difference and not verdict.unsteady:
        print(f"----- shrunk: {told(shrink(program, twice))}", flush=True)
    return bool(verdict.difference) and not verdict.unsteady


if __name__ == "__main__":
    sys.exit(main())
