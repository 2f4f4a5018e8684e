"""From a program that only infers and a gate to the fastest lossy edit that is proven, and all points beside it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
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
from gobrrr.system import files
from gobrrr.trial.edit.reading import together
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate.interval import FEWEST
from gobrrr.trial.lossy.bench import NO_PLACE, Bench
from gobrrr.trial.lossy.search import Search, Seen, front
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.race.tuning import Listener
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
        trains = any(each.program_calls("backward") for each in program_files)
        raise TRAINS if trains else GobrrrError(NO_PLACE, "call eval() on the model, in a line of its own", UNMEASURED)
    mark_output(folder)
    clock = first_run.Clock(time.monotonic(), asked.seconds)
    edits = {each.name: EditOnTrial(each, asked.accepted, gates=asked.gates) for each in asked.edits}
    with contextlib.ExitStack() as stack:
        report, program = proving.begun(command, source, folder, asked, clock, stack, stream)
        if report.step.kind != "inference":
            raise TRAINS
        found = _Searched(asked, clock)
        arms = tuning.own_folder(folder, ARMS, stack)
        complete = found.run(program._replace(edits=edits), edits, arms, write, allow, stream, stops)
    receipt = proving.receipt_of(found.trials, complete, edits, report, clock, asked)
    receipt = msgspec.structs.replace(
        receipt, points=tuple(found.points()), not_tried=found.not_tried, measured=True,
        edits={name: receipt.edits[name] for trial in found.trials for name in trial.remedies},
        left=() if receipt.kept else found.left(), likely=() if receipt.kept else found.likely(),
    )  # fmt: skip
    receipt = proving.written(receipt, report, command, source, folder, asked)
    patch = together([edits[name].edit for name in receipt.kept], source).diff if receipt.kept else ""
    if patch:
        files.write(folder / PATCH, patch.encode())
    else:
        first_run.put_aside(folder / PATCH)
    return receipt


class _Searched:
    """What a search found, as far as it came."""

    def __init__(self, asked: Asked, clock: first_run.Clock) -> None:
        self._asked, self._clock = asked, clock
        self._bench: Bench | None = None
        self._search: Search | None = None
        self.not_tried: dict[str, str] = {}
        self.trials: list[TrialResult] = []

    def run(
        self, program: Program, edits: dict[str, EditOnTrial], arms: Path,
        write: Callable[[Point, Facts | None, str], Written], allow: Callable[[str], bool], stream: TextIO,
        stops: Callable[[Callable[[], None]], object],
    ) -> bool:  # fmt: skip
        """Search, then prove; false where it was interrupted."""
        from gobrrr.report.text import tuning_progress

        listener = tuning_progress.listener(stream, self._clock.left, self._asked.objective)
        referee = LiveReferee(program, arms, seed=self._asked.seed, progress=listener.progress, overrun=1.0,
                              until=self._clock.ends + tuning.LATE * self._clock.seconds,
                              objective=self._asked.objective)  # fmt: skip
        stops(referee.stop)
        try:
            with listener:
                self._bench = bench = Bench((referee.whole, referee.is_over), arms, edits, self._asked.gates, write,
                                            self._clock.ends, listener.trying)  # fmt: skip
                needed = 2 * FEWEST * bench.run_s / proving.GATING / (self._clock.left or 1.0)
                bench.until -= min(max(PROVING, needed), MOST_PROVING) * self._clock.left
                self._search = Search(bench.own.ns, bench, [(Part(each.name),) for each in self._asked.edits])
                best = self._search.run(self._fit(allow, bench.facts))
                self.not_tried |= dict.fromkeys(self._search.left, NO_TIME)
                self._prove(referee, best[:MOST_PROVEN], listener)
            return True
        except KeyboardInterrupt:
            return False
        finally:
            referee.close()

    def _fit(self, allow: Callable[[str], bool], facts: Facts) -> list[str]:
        """Forms that are tried, those that compile last; of the others the reason is kept."""
        known = sorted((each for each in FORMS if allow(each.name)),
                       key=lambda each: (each.compiles, each.name not in FIRST, not each.exact))  # fmt: skip
        self.not_tried = {each.name: why for each in known if (why := each.unfit(facts))}
        return [each.name for each in known if each.name not in self.not_tried]

    def _prove(self, referee: LiveReferee, best: Sequence[Point], listener: Listener) -> None:
        """Prove the fastest; where it is not, the next one."""
        for number, point in enumerate(best, 1):
            tried = proving.proven(referee, self._stack(point), self._clock.ends, self._asked, listener, number)
            self.trials.append(tried)
            if (tried.verdict in BETTER and tried.guard.green) or self._clock.left < tried.seconds:
                break

    def _stack(self, point: Point) -> tuple[str, ...]:
        assert self._bench is not None
        return self._bench.stack(point)

    def likely(self) -> tuple[str, ...]:
        """Return the forms of the fastest point within its gates; empty where there is none."""
        best = self._search.best() if self._search is not None else []
        return tuple(part.told for part in best[0]) if best else ()

    def left(self) -> tuple[str, ...]:
        """Return the forms that there was no time for."""
        return tuple(self._search.left) if self._search is not None else ()

    def points(self) -> list[Tried]:
        """Return all that was run, the program as it is first."""
        if self._bench is None or self._search is None:
            return []
        own = self._bench.own
        rows = [((), own), *self._search.seen.items()]
        best = front([seen for _, seen in rows])
        return [self._told(point, seen, is_best) for (point, seen), is_best in zip(rows, best, strict=True)]

    def _told(self, point: Point, seen: Seen, is_best: bool) -> Tried:
        assert self._bench is not None
        trial = next((each for each in self.trials if point and each.remedies == self._stack(point)), None)
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
            speed=self._bench.own.ns / seen.ns if 0 < seen.ns < math.inf else None,
            bytes=seen.bytes, gates=gates, stays=tuple(sorted({name for part in point for name in part.keep})),
            best=is_best and mark != "refused", reason=seen.reason or next(iter(reasons), ""),
        )  # fmt: skip
