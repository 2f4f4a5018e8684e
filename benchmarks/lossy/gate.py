"""How often gobrrr's gate errs on models with real values: honest and sabotaged edits of twelve trained models.

    python -m benchmarks.lossy.gate [NAME ...] --weights DIR [--groups 36]

For each model the program runs on GROUPS small groups of items, one for each seed, as it is and with each edit, and its
own measure is read of what it prints. The mean over all groups is the truth. A trial draws for each of its seeds some
of these groups, and gobrrr's own judgement (trial/gate/pairs.py) is given what the program would have printed, pair by
pair. Honest: at most half of the allowance is lost. Sabotaged: more than the allowance, strengths found by bisection.
What is not yet in DIR is trained first.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.lossy.cases import BY_NAME, CASES, Case
from benchmarks.lossy.train import ensure
from benchmarks.stamp import stamp
from gobrrr.errors import GobrrrError
from gobrrr.guard.model.account import Row
from gobrrr.guard.model.gate import ACCEPTED, REFUSED, UNDECIDED
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.whole import Ran
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.rule import Gate

RESULTS = Path(__file__).parents[1] / "results"
SOUGHT = (0.3, 1.3, 1.7, 3.0)
"""Losses in allowances that are sought, with a kind of edit that goes round from model to model."""
WEAKEST, CLOSE = 1e-3, 1.3
"""The least strength that is tried, and the ratio of two strengths between which the loss is interpolated."""
TRIALS = 10
"""Trials of each edit, each with seeds of its own."""
SHARE = 3
"""One run looks at one of so many groups."""


class Tried(NamedTuple):
    """One edit of one model: its true loss in allowances, and the verdict and pairs of each trial."""

    model: str
    edit: str
    loss: float
    trials: tuple[tuple[str, int], ...]

    @property
    def kind(self) -> str:
        """Whether it is honest, sabotaged, or between."""
        return "honest" if self.loss <= 0.5 else "sabotaged" if self.loss > 1 else "between"


class Told:
    """What pairs.judged takes for an arm: its run prints the value of its seed."""

    def __init__(self, gate: Gate, value: Callable[[int], float]) -> None:
        self._gate, self._value = gate, value

    def whole(self, seed: int, seconds: float, measures: object = ()) -> Ran:
        """As WholeRun.whole."""
        return Ran(Row(1, made=(float(seed + 1), 1.0)), f"{self._gate.name}: {self._value(seed)!r}", Path(), 0)

    def end(self) -> None:
        """Nothing to end."""


def verdict(gate: Gate, plain: Callable[[int], float], edited: Callable[[int], float]) -> tuple[str, int]:
    """The verdict of gobrrr's gate on these values by seed, and the pairs that it took."""
    bare = gate._replace(measure="")
    with tempfile.TemporaryDirectory() as folder:
        means: Any = (lambda place, stack: Told(bare, edited if stack else plain), lambda: False)
        try:
            found, _ = pairs.judged(means, Path(folder), ("edit",), [bare], (), 1e9)
        except (ArmError, GobrrrError):
            return "no measure", 0
    (gated,) = found.gates
    return gated.verdict, len(gated.seeds)


def loss(gate: Gate, plain: Sequence[float], edited: Sequence[float]) -> float:
    """What the edit loses over all groups, in allowances."""
    change = (fmean(edited) - fmean(plain)) * (100 / abs(fmean(plain)) if gate.relative else 1.0)
    return (change if gate.falls else -change) / abs(gate.allowed)


def drawn(values: Sequence[float], trial: str, digits: int) -> Callable[[int], float]:
    """The measure by seed: that of a run which looks at some of the groups, as it would be printed."""

    def value(seed: int) -> float:
        chosen = random.Random(f"{trial} {seed}").sample(range(len(values)), len(values) // SHARE)
        return round(fmean(values[index] for index in chosen), digits)

    return value


def tried(case: Case, edit: str, plain: Sequence[float], edited: Sequence[float], trials: int = TRIALS) -> Tried:
    """Trials of one edit."""
    digits = max(len(repr(value).partition(".")[2]) for value in [*plain, *edited])
    found = tuple(
        verdict(case.gate, drawn(plain, key, min(digits, 6)), drawn(edited, key, min(digits, 6)))
        for key in (f"{case.name} {edit} {number}" for number in range(trials))
    )
    return Tried(case.name, edit, loss(case.gate, plain, edited), found)


def strength(known: dict[float, float], of: Callable[[float], float], target: float) -> float:
    """The strength at which about so much is lost: by bisection of its logarithm between known ones, interpolated."""
    while True:
        high = min((much for much, lost in known.items() if lost >= target), default=1.0)
        low = max((much for much, lost in known.items() if lost < target and much < high), default=WEAKEST)
        if high / low < CLOSE:
            below, above = max(0.0, known.get(low, 0.0)), known.get(high, math.inf)
            found = low * (high / low) ** ((target - below) / (above - below))
            return found if found > 1.02 * low else high  # `low` may have been tried itself
        middle = math.sqrt(low * high)
        known[middle] = of(middle)


def model(case: Case, folder: Path, groups: int) -> Iterator[Tried]:
    """All edits of one model."""
    from benchmarks.lossy import edits
    from benchmarks.lossy.inprocess import Edit, Program

    program = Program(case, folder)

    def values(edit: Edit | None, count: int = groups) -> list[float]:
        return [program.value(case.little, seed, edit) for seed in range(count)]

    plain = values(None)
    print(f"{case.name}: {fmean(plain):g} as it is", file=sys.stderr, flush=True)
    for name, edit in edits.honest(case.name).items():
        yield tried(case, name, plain, values(edit))
    first = groups // 3
    kind = edits.KINDS[CASES.index(case) % len(edits.KINDS)]

    known: dict[float, float] = {}

    def lost(much: float) -> float:
        return loss(case.gate, plain[:first], values(edits.graded(kind, much), first))

    for target in SOUGHT:
        much = strength(known, lost, target)
        yield (found := tried(case, f"{kind} {much:.3g}", plain, values(edits.graded(kind, much))))
        known[much] = found.loss


def counts(found: Iterable[Tried]) -> dict[str, Any]:
    """How many trials came to which verdict."""
    trials = [trial for each in found for trial in each.trials]
    told = [said for said, _ in trials]
    return {
        "trials": len(trials),
        **{said: told.count(said) for said in (ACCEPTED, REFUSED, UNDECIDED, "no measure")},
        "pairs": fmean(num for _, num in trials) if trials else 0.0,
    }


def table(found: Sequence[Tried], head: dict[str, Any], command: str) -> str:
    """The result as Markdown."""
    lines = [f"# The gate on twelve models, {head['date']}", "",
             f"{head['cpu']}, {head['cores']} cores. Python {head['python']}, torch {head['torch']}.",
             f"`{command}`", "", (__doc__ or "").split("\n\n")[-1].strip(), "",
             "| edits | number | trials | accepted | refused | undecided | no measure | pairs |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip

    def row(name: str, edits: Sequence[Tried]) -> str:
        told = counts(edits)
        return f"| {name} | {len(edits)} | " + " | ".join(
            f"{value:.1f}" if key == "pairs" else f"{value}" for key, value in told.items()) + " |"  # fmt: skip

    kinds = {kind: [each for each in found if each.kind == kind] for kind in ("honest", "between", "sabotaged")}
    near = [each for each in kinds["sabotaged"] if each.loss <= 2]
    lines += [row("honest: at most half of the allowance lost", kinds["honest"]), row("between", kinds["between"]),
              row("sabotaged: more than the allowance lost", kinds["sabotaged"]),
              row("of these, at most twice the allowance", near), "",
              "| model | gate | kind | edits | trials | accepted | refused | undecided | no measure | pairs |",
              "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in dict.fromkeys(each.model for each in found):
        for kind in ("honest", "sabotaged"):
            lines.append(row(f"{name} | {BY_NAME[name].accept} | {kind}", [e for e in kinds[kind] if e.model == name]))
    lines += ["", "| model | edit | loss, in allowances | accepted | refused | undecided | pairs |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for each in found:
        told = counts([each])
        lines.append(f"| {each.model} | {each.edit} | {each.loss:.2f} | {told[ACCEPTED]} | {told[REFUSED]} | "
                     f"{told[UNDECIDED]} | {told['pairs']:.1f} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> int:
    """Judge all edits of those named, write the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=36)
    args = parser.parse_args()
    head = stamp()
    file = RESULTS / f"gate-twelve-{head['date']}.json"
    for name in args.names or BY_NAME:
        new = []
        ensure(name, args.weights)
        for each in model(BY_NAME[name], args.weights.resolve(), args.groups):
            new.append(each)
            print(each.model, each.edit, f"{each.loss:.2f}", counts([each]), file=sys.stderr, flush=True)
        rows: list[Any] = json.loads(file.read_text()) if file.exists() else []  # others may have written meanwhile
        found = [*(Tried(*row[:3], tuple(map(tuple, row[3]))) for row in rows if row[0] != name), *new]
        found.sort(key=lambda each: list(BY_NAME).index(each.model))
        file.write_text(json.dumps(found) + "\n", encoding="utf-8")
        command = f"python -m benchmarks.lossy.gate --weights DIR --groups {args.groups}"
        file.with_suffix(".md").write_text(table(found, head, command), encoding="utf-8")
    wrong = counts(each for each in found if each.kind == "sabotaged")
    right = counts(each for each in found if each.kind == "honest")
    return int(wrong[ACCEPTED] > 0.05 * wrong["trials"] or right[ACCEPTED] < 0.8 * right["trials"])


if __name__ == "__main__":
    sys.exit(main())
