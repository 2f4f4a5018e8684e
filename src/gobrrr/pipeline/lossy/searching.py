"""From a program that only infers and a gate to the fastest lossy edit that is proven, and all points beside it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

import msgspec

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.pipeline import first_run, proving, tuning
from gobrrr.pipeline.file_names import ARMS, PATCH
from gobrrr.pipeline.proving import Asked
from gobrrr.remedies.edits.lossy import FORMS, Facts, Part, Point, Written, name_of, written
from gobrrr.remedies.edits.program import files_of, read
from gobrrr.trial.edit.reading import together
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate.interval import FEWEST
from gobrrr.trial.lossy.bench import NO_PLACE, Bench
from gobrrr.trial.lossy.search import Search, Seen, front
from gobrrr.trial.race.referee import Program
from gobrrr.trial.receipt.receipt import Receipt, TrialResult, Tried
from gobrrr.trial.sandbox.workspace import mark_output
from gobrrr.trial.statistics.objective import BETTER

PROVING, MOST_PROVING = 0.5, 0.7
"""Shares of the time after the diagnosis that are left for the proof, at least, and at most where runs take long."""
FIRST = ("half_precision", "int8_dynamic", "static_int8")
"""Forms that are tried first: they bring most on CPUs, and compile nothing."""
MOST_PROVEN = 3
"""Points that are proven at most, one after another until one is: an undecided one spends what is left."""
NO_TIME = "there was no time left"
TRAINS = GobrrrError("the program trains: lossy edits are searched for programs that only infer",
                     "judge one of yours: gobrrr prove --accept RULE --patch YOUR.diff")  # fmt: skip


def search(
    command: Sequence[str], source: Path, folder: Path, asked: Asked, allow: Callable[[str], bool], stream: TextIO,
    stops: Callable[[Callable[[], None]], object] = lambda _: None,
) -> Receipt:  # fmt: skip
    """Search the forms that `allow` lets pass and the user's own edits, prove what is fastest within the gates.

    Raises GobrrrError where the program trains, or its gates cannot be read.
    """
    program_files = read(files_of(command, source))
    write = partial(written, program_files, source)
    if not write((), None, "run").files:
        raise GobrrrError(NO_PLACE, "call eval() on the model, in a line of its own", UNMEASURED)
    mark_output(folder)
    clock = first_run.Clock(time.monotonic(), asked.seconds)
    edits = {each.name: EditOnTrial(each, asked.accepted, gates=asked.gates) for each in asked.edits}
    with contextlib.ExitStack() as stack:
        report, program = proving.begun(command, source, folder, asked, clock, stack, stream)
        if report.step.kind != "inference":
            raise TRAINS
        found = _Found()
        complete = found.run(program._replace(edits=edits), tuning.own_folder(folder, ARMS, stack), asked, clock, edits,
                             write, allow, stream, stops)  # fmt: skip
    proven = {name: edits[name] for trial in found.trials for name in trial.remedies}
    receipt = proving.receipt_of(found.trials, complete, proven, report, clock, asked)
    receipt = msgspec.structs.replace(receipt, points=tuple(found.points()), not_tried=found.not_tried, measured=True)
    if not receipt.kept and found.search is not None:
        refused = {each.remedies for each in found.trials if each.guard.red or each.verdict == "equivalent"}
        open_ = [point for point in found.search.best() if found.bench and found.bench.stack(point) not in refused]
        likely = tuple(part.told for point in open_[:1] for part in point)
        receipt = msgspec.structs.replace(receipt, left=tuple(found.search.left), likely=likely)
    receipt = proving.written(receipt, report, command, source, folder, asked)
    patch = together([edits[name].edit for name in receipt.kept], source).diff if receipt.kept else ""
    tuning.write_or_put_aside(folder / PATCH, patch)
    return receipt


@dataclass
class _Found:
    """Results of a search, as far as it came."""

    bench: Bench | None = None
    search: Search | None = None
    not_tried: dict[str, str] = field(default_factory=dict)
    trials: list[TrialResult] = field(default_factory=list)

    def run(
        self, program: Program, arms: Path, asked: Asked, clock: first_run.Clock, edits: dict[str, EditOnTrial],
        write: Callable[[Point, Facts | None, str], Written], allow: Callable[[str], bool], stream: TextIO,
        stops: Callable[[Callable[[], None]], object],
    ) -> bool:  # fmt: skip
        """Search, then prove the fastest, or where it is not, the next one; false where it was interrupted."""
        began = tuning.refereed(program, arms, asked.seed, asked.objective, clock, stream, stops)
        with contextlib.suppress(KeyboardInterrupt), began as (referee, listener), listener:
            self.bench = bench = Bench((referee.whole, referee.is_over), arms, edits, asked.gates, write,
                                       clock.ends, listener.trying)  # fmt: skip
            needed = 2 * FEWEST * bench.run_s / proving.GATING / (clock.left or 1.0)
            bench.until -= min(max(PROVING, needed), MOST_PROVING) * clock.left
            self.search = Search(bench.own.ns, bench, [(Part(each.name),) for each in asked.edits])
            known = sorted((each for each in FORMS if allow(each.name)),
                           key=lambda each: (each.compiles, each.name not in FIRST, not each.exact))  # fmt: skip
            self.not_tried = {each.name: why for each in known if (why := each.unfit(bench.facts))}
            best = self.search.run([each.name for each in known if each.name not in self.not_tried])
            self.not_tried |= dict.fromkeys(self.search.left, NO_TIME)
            for number, point in enumerate(best[:MOST_PROVEN], 1):
                tried = proving.proven(referee, bench.stack(point), clock.ends, asked, listener, number)
                self.trials.append(tried)
                if (tried.verdict in BETTER and tried.guard.green) or clock.left < tried.seconds:
                    break
            return True
        return False

    def points(self) -> list[Tried]:
        """Return all that was run, the program as it is first."""
        if self.bench is None or self.search is None:
            return []
        own = self.bench.own
        rows = [((), own), *self.search.seen.items()]
        best = front([seen for _, seen in rows])
        return [self._told(point, seen, is_best) for (point, seen), is_best in zip(rows, best, strict=True)]

    def _told(self, point: Point, seen: Seen, is_best: bool) -> Tried:
        assert self.bench is not None
        trial = next((each for each in self.trials if point and each.remedies == self.bench.stack(point)), None)
        mark = "within" if seen.held else "does not run" if seen.reason else "refused"
        gates, reasons = seen.gates, tuple[str, ...]()
        if trial is not None:
            gates, good = trial.guard.gates or gates, trial.guard.green
            settled = "kept" if good and trial.verdict in BETTER else "not faster" if good else "undecided"
            mark = "refused" if trial.guard.red else settled
            mark, reasons = ("does not run", (trial.reason,)) if trial.verdict == "failed" else (mark, ())
            reasons = reasons or (() if trial.guard.gates else trial.guard.reasons)
        return Tried(
            name=name_of(point), mark=mark if point else "",
            speed=self.bench.own.ns / seen.ns if 0 < seen.ns < math.inf else None,
            bytes=seen.bytes, gates=gates, stays=tuple(sorted({name for part in point for name in part.keep})),
            best=is_best and mark != "refused", reason=seen.reason or next(iter(reasons), ""),
        )  # fmt: skip
