"""From an edit to its verdict: is the program faster with it, and does it still compute the same?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.guard.model.verdict import Guarded
from gobrrr.pipeline import first_run, redaction, tuning
from gobrrr.pipeline.file_names import ARMS, DIAGNOSIS, PAGE, RECEIPT
from gobrrr.report.forms import formats
from gobrrr.report.told.speedup_text import lowest_gain
from gobrrr.rules.verdict.report import Report
from gobrrr.system import files
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate.rule import Gate
from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.race.tuning import Listener
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import EditTold, Measured, Receipt, TrialResult
from gobrrr.trial.sandbox.limits import AT_HOME, Limits
from gobrrr.trial.sandbox.workspace import mark_output
from gobrrr.trial.statistics.objective import BETTER, WHOLE, Objective

FIRST_LOOK = 0.4
"""Share of the minutes for watching the program once; proposed: two starts and some steps; proofs of slow programs."""

GATING = 0.6
"""Share of the time that an edit has for its gates; proposed: a timing takes a minute or two."""
UNTIMED = "the time was spent while its numbers were checked: it was not timed (--minutes)"


class Asked(NamedTuple):
    """Edits to prove, and how. `edits`: each alone; the last may be all of them together."""

    edits: tuple[ProgramEdit, ...]
    base: ProgramEdit | None = None
    """The change that makes the folder the program as it is, where that is another commit."""
    accepted: frozenset[str] = frozenset()
    renames: Mapping[str, tuple[str, ...]] = {}
    seconds: float = 300.0
    seed: int = 0
    limits: Limits = AT_HOME
    redact: redaction.Patterns = ()
    objective: Objective = WHOLE
    gates: tuple[Gate, ...] = ()
    """The user's own measures, which are held in place of the numbers."""


def prove(
    command: Sequence[str], source: Path, folder: Path, asked: Asked, stream: TextIO,
    stops: Callable[[Callable[[], None]], object] = lambda _: None,
) -> Receipt:  # fmt: skip
    """Watch the program once, then check and race each edit against it. `stops` is given what ends the arms at once.

    Raises GobrrrError where the program as it is cannot be measured.
    """
    tuning.check_gauge(asked.objective, device=True)
    mark_output(folder)
    clock = first_run.Clock(time.monotonic(), asked.seconds)
    edits = {each.name: EditOnTrial(each, asked.accepted, asked.renames, asked.gates) for each in asked.edits}
    with contextlib.ExitStack() as stack:
        report, program = begun(command, source, folder, asked, clock, stack, stream)
        program = program._replace(base=asked.base, edits=edits)
        trials, complete = _tried(program, tuning.own_folder(folder, ARMS, stack), asked, clock, stream, stops)
    return written(receipt_of(trials, complete, edits, report, clock, asked), report, command, source, folder, asked)


def begun(
    command: Sequence[str], source: Path, folder: Path, asked: Asked, clock: first_run.Clock,
    stack: contextlib.ExitStack, stream: TextIO,
) -> tuple[Report, Program]:  # fmt: skip
    """Watch the program once; arms may run until the stack is left. Raises GobrrrError where it cannot be measured."""
    within, _ = tuning.confined(asked.limits, source, folder, stack, stream)
    try:
        report = first_run.diagnosed(command, source, folder / DIAGNOSIS, stream, within, asked.redact,
                                     clock._replace(seconds=FIRST_LOOK * asked.seconds), base=asked.base,
                                     rehearsal=False)  # fmt: skip
    except GobrrrError as error:  # the program as it is, not the command line
        raise GobrrrError(error.message, error.hint, UNMEASURED) from None
    return report, tuning.measured_program(report, command, source, within)


def written(
    receipt: Receipt, report: Report, command: Sequence[str], source: Path, folder: Path, asked: Asked
) -> Receipt:  # fmt: skip
    """Sign a receipt, and write it and its page."""
    receipt = tuning.signed(receipt, report, command, source, asked.seed)
    receipt = receipts.marked(redaction.redacted(receipt, asked.redact))
    receipts.write(receipt, folder / RECEIPT)
    files.write(folder / PAGE, formats.render(receipt, "html", formats.PLAIN))
    return receipt


def _tried(
    program: Program, arms: Path, asked: Asked, clock: first_run.Clock, stream: TextIO,
    stops: Callable[[Callable[[], None]], object],
) -> tuple[list[TrialResult], bool]:  # fmt: skip
    """The result of each edit, and whether none was cut off by Ctrl-C."""
    found: list[TrialResult] = []
    began = tuning.refereed(program, arms, asked.seed, asked.objective, clock, stream, stops)
    with contextlib.suppress(KeyboardInterrupt), began as (referee, listener), listener:
        for number, name in enumerate(program.edits):
            until = time.monotonic() + clock.left / (len(program.edits) - number)
            found.append(proven(referee, (name,), until, asked, listener, number + 1))
        return found, True
    return found, False


def proven(
    referee: LiveReferee, stack: tuple[str, ...], until: float, asked: Asked, listener: Listener, number: int
) -> TrialResult:  # fmt: skip
    """Check the numbers of a combination, or its gates, and time it where they do not refuse it."""
    listener.guarding(stack)
    began = time.monotonic()
    guarded, measured = _checked(referee, stack, until)
    if measured.verdict == "failed" or (asked.gates and not guarded.green):
        pass
    elif time.monotonic() >= until:
        measured = Measured(verdict="inconclusive", reason=UNTIMED)
    elif not guarded.red:
        listener.began(Plan((), stack), number)
        measured = referee.measure(Plan((), stack), until - time.monotonic())
        guarded = referee.with_account(guarded, measured, stack)
    tried = receipts.confirmed(stack, measured, guarded, time.monotonic() - began)
    tried = msgspec.structs.replace(tried, objective=asked.objective.name)
    listener.ended(tried)
    return tried


def _checked(referee: LiveReferee, stack: tuple[str, ...], until: float) -> tuple[Guarded, Measured]:
    """Judge its numbers, or by its gates; nothing is timed as yet."""
    try:
        guarded = referee.gated(stack, GATING * (until - time.monotonic()))
    except ArmError as error:
        return Guarded(), Measured(verdict="failed", reason=error.reason)
    return guarded if guarded is not None else referee.guard(stack), Measured(verdict="inconclusive")


def receipt_of(
    trials: Sequence[TrialResult], complete: bool, edits: Mapping[str, EditOnTrial], report: Report,
    clock: first_run.Clock, asked: Asked,
) -> Receipt:  # fmt: skip
    """The receipt; kept is the fastest of those that are proven."""
    proven = [each for each in trials if each.verdict in BETTER and each.guard.green and each.speedup is not None]
    best = max(proven, key=lowest_gain, default=None)
    told = best or max(trials, key=lambda each: each.guard.red, default=None)
    steps = [each.baseline_step_ns for each in trials if each.baseline_step_ns]
    return Receipt(
        verb="prove",
        trials=tuple(trials), kept=best.remedies if best else (), complete=complete,
        objective=asked.objective.name, energy=best.energy if best else None,
        speedup=best.speedup if best else None, guard=told.guard if told else Guarded(),
        measured=any(each.verdict != "failed" for each in trials),
        step_ns=steps[0] if steps else float(report.step.plain_wall_ns),
        diagnosed_step_ns=float(report.step.plain_wall_ns), seconds=round(clock.spent, 1),
        edits={name: EditTold(each.edit.diff, dict(each.edit.env), each.edit.args, tuple(sorted(asked.accepted)),
                             dict(asked.renames), tuple((gate.text, gate.measure) for gate in asked.gates),
                             asked.base is not None)
               for name, each in edits.items()},
    )  # fmt: skip
