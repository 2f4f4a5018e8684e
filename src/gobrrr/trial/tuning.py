"""From candidates to a receipt: trial after trial within a budget of time, every finished one kept on disk.

What measures and what guards is handed in, so that all of it runs on a fake clock in tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gobrrr.guard.model import Guarded
from gobrrr.machine import files
from gobrrr.rules.model import Saving
from gobrrr.trial import mark
from gobrrr.trial.receipt import MAX_BYTES, Compiled, Receipt, Samples, Speedup, StartUp, TrialResult
from gobrrr.trial.search import FAST, Candidate, Plan, Search


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the referee says of one pair of stacks. `step_ns`: medians of baseline and candidate."""

    verdict: str
    reason: str = ""
    speedup: Speedup | None = None
    p_value: float | None = None
    blocks_needed: int | None = None
    step_ns: tuple[float | None, float | None] = (None, None)
    start_up: StartUp = StartUp()
    compiled: Compiled | None = None
    peak_bytes: tuple[int | None, int | None] = (None, None)
    samples: Samples = Samples()


class Referee(Protocol):
    """Runs the arms. Neither method raises for what goes wrong inside an arm: that is an outcome."""

    def measure(self, plan: Plan) -> Measured:
        """Baseline stack against candidate stack, in pairs."""

    def guard(self, stack: tuple[str, ...]) -> Guarded:
        """The numbers of a stack against those of the untouched program."""


class Listener:
    """Told what happens, as it happens; the live view and the plain lines are two of these."""

    def began(self, plan: Plan, number: int) -> None:
        """A trial begins."""

    def progress(self, done: int, planned: int, so_far: Speedup | None) -> None:
        """Blocks measured so far of the running trial, and the interval that they give."""

    def guarding(self, stack: tuple[str, ...]) -> None:
        """The numbers of a stack are about to be checked."""

    def ended(self, result: TrialResult) -> None:
        """A trial has ended."""


class Line(TrialResult, frozen=True, kw_only=True):
    """A line of the journal: a trial, marked by who measured it."""

    mark: str = ""


class Journal:
    """Finished trials, one JSON line each, in the order in which they ended; only ever appended to."""

    def __init__(self, file: Path, about: str = "") -> None:
        """`about`: the program whose trials these are; another's are none of them."""
        self._file, self._kind = file, f"trial\0{about}"
        self.foreign = 0
        """Lines of the last read() that somebody else wrote, or of another program."""

    def append(self, result: TrialResult) -> None:
        """Write one trial, through to the disk's cache. Raises OSError, for a link too."""
        fields = msgspec.to_builtins(result) | {"mark": mark.of(_canonical(result), self._kind)}
        files.append(self._file, msgspec.json.encode(fields) + b"\n")

    def read(self) -> list[TrialResult]:
        """All whole lines that this user measured on this machine: what others wrote was not measured here, and a last
        line that was cut off is left out. Raises OSError for what is no plain file."""
        if not self._file.exists():
            return []
        lines = [line for each in files.read(self._file, MAX_BYTES).split(b"\n") if (line := _decoded(each))]
        found = [_trial(line) for line in lines if mark.holds(line.mark, _canonical(line), self._kind)]
        self.foreign = len(lines) - len(found)
        return found


def _canonical(result: TrialResult) -> bytes:
    """A trial's bytes without its mark, as they are once it was read back."""
    line = _decoded(msgspec.json.encode(result))
    return msgspec.json.encode(_trial(line)) if line is not None else b""


def _trial(line: Line) -> TrialResult:
    return TrialResult(**{name: getattr(line, name) for name in TrialResult.__struct_fields__})


def _decoded(line: bytes) -> Line | None:
    try:
        return msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Tuning:
    """One run of `gobrrr tune` between its diagnosis and its receipt."""

    def __init__(
        self, candidates: Sequence[Candidate], step_ns: float, referee: Referee, journal: Journal, *,
        seconds: float, listener: Listener | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.search = Search(candidates, step_ns)
        self._predicted = {c.name: c.predicted for c in candidates}
        self._step_ns, self._referee, self._journal = step_ns, referee, journal
        self._seconds, self._listener, self._clock = seconds, listener or Listener(), clock
        self._finished = {_key(result): result for result in journal.read()}
        self.results: list[TrialResult] = []
        self.complete = False

    def run(self) -> None:
        """Try until the search is over; a KeyboardInterrupt leaves what was finished in `results` and on disk."""
        began = self._clock()
        try:
            while (plan := self.search.next()) is not None:
                result = self._finished.get(_wanted(plan)) or self._trial(plan)
                self.results.append(result)
                after = None
                if result.baseline_step_ns and result.speedup:
                    after = result.baseline_step_ns / result.speedup.median
                self.search.feed(plan, result.verdict, result.guard.verdict, after)
                if self._clock() - began > self._seconds:
                    self.search.stop(f"the {self._seconds / 60:.0f} minutes were spent")
            self.complete = True
        except KeyboardInterrupt:
            pass

    def _trial(self, plan: Plan) -> TrialResult:
        self._listener.began(plan, len(self.results) + 1)
        began = self._clock()
        measured = self._referee.measure(plan)
        # Only what might be kept is worth the guard's runs.
        wanted = measured.verdict == FAST and plan.purpose != "leave-one-out"
        if wanted:
            self._listener.guarding(plan.candidate)
        guarded = self._referee.guard(plan.candidate) if wanted else Guarded()
        result = _result(plan, measured, guarded, self._predicted.get(plan.remedy), self._clock() - began)
        self._journal.append(result)
        self._listener.ended(result)
        return result

    def receipt(self) -> Receipt:
        """The receipt of what was finished."""
        final = next((r for r in reversed(self.results) if r.purpose == "final"), None)
        baseline = next((r.baseline_step_ns for r in self.results if not r.onto and r.baseline_step_ns), self._step_ns)
        if final is not None and final.baseline_step_ns:
            baseline = final.baseline_step_ns
        return Receipt(
            trials=tuple(self.results), kept=tuple(self.search.kept), complete=self.complete, step_ns=baseline,
            speedup=final.speedup if final else None, guard=final.guard if final else Guarded(),
            notes=tuple(f"{name} was not tried: {why}" for name, why in self.search.skipped.items()),
        )  # fmt: skip


def _result(plan: Plan, measured: Measured, guarded: Guarded, predicted: Saving | None, seconds: float) -> TrialResult:
    before = measured.step_ns[0]
    realised = None
    if before and measured.speedup is not None:
        realised = before * (1 - 1 / measured.speedup.median)
    return TrialResult(
        remedies=plan.candidate if plan.purpose == "final" else (plan.remedy,), onto=plan.baseline,
        purpose=plan.purpose, verdict=measured.verdict, reason=measured.reason, speedup=measured.speedup,
        p_value=measured.p_value, blocks_needed=measured.blocks_needed, guard=guarded, predicted=predicted,
        realised_ns=realised, baseline_step_ns=before, start_up=measured.start_up, compiled=measured.compiled,
        peak_bytes=measured.peak_bytes,
        samples=measured.samples, seconds=seconds,
    )  # fmt: skip


Key = tuple[str, tuple[str, ...], tuple[str, ...]]


def _key(result: TrialResult) -> Key:
    return result.purpose, result.onto, result.remedies


def _wanted(plan: Plan) -> Key:
    return plan.purpose, plan.baseline, plan.candidate if plan.purpose == "final" else (plan.remedy,)
