"""Does an edit make a program fit that runs out of memory, and does it compute the same at a batch that fits?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.guard.model.verdict import Guarded
from gobrrr.machine.probe.system_probe import oom_kills
from gobrrr.pipeline import first_run, redaction, tuning
from gobrrr.pipeline.file_names import ARMS, DIAGNOSIS, RECEIPT
from gobrrr.pipeline.out_of_memory import died_of
from gobrrr.pipeline.proving import Asked
from gobrrr.recording.run_folder.run import load_run
from gobrrr.system import files
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.reading import together
from gobrrr.trial.edit.setting import Setting, find
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.receipt.swept import Fitted
from gobrrr.trial.sandbox import limits
from gobrrr.trial.sandbox.workspace import mark_output

BEYOND = 3
"""Steps beyond the failed one that an edited program must make to be said to fit (proposed: the optimizer's state and
the second forward are there by then)."""
PLAIN, EDITED = 0.25, 0.3
"""Shares of the minutes for the program as it is and for the edited one; the rest is for its numbers."""
AS_FAR = 2
"""Multiple of the steps that the program dies after, which the edited one must make: what keeps growing would die by
then (proposed)."""
STEP_NS = 1e8
"""Length that is taken for the step of a program of which none was timed."""


def fit(
    command: Sequence[str], source: Path, folder: Path, asked: Asked, batch: str, stream: TextIO,
    stops: Callable[[Callable[[], None]], object] = lambda _: None,
) -> Fitted:  # fmt: skip
    """Run the program until it dies of memory, then with the edit, then compare numbers at `batch` (empty: a smaller
    one of its own). Raises GobrrrError where the program as it is does not die of memory."""
    mark_output(folder)
    clock = first_run.Clock(time.monotonic(), asked.seconds)
    if len(asked.edits) > 1 or asked.base is not None:
        raise GobrrrError("--objective fit takes one edit of the folder as it is", "prove the others by themselves")
    edit = asked.edits[0]
    with contextlib.ExitStack() as stack:
        within, _ = tuning.confined(asked.limits, source, folder, stack, stream)
        stream.write("gobrrr: running the program until it dies of memory\n")
        stream.flush()
        place = folder / DIAGNOSIS
        kills = oom_kills()
        seen = first_run.watched(command, source, place, within, _part(clock, PLAIN), closely=False)
        died = died_of(place, seen.code, kills)
        if died is None:
            raise GobrrrError(
                f"the program as it is does not run out of memory: it {_ended(seen, place)}",
                "gobrrr run says where memory goes; prove the edit for its time without --objective fit", UNMEASURED,
            )  # fmt: skip
        stream.write(f"gobrrr: {died.sentence}\ngobrrr: running it with {edit.name}\n")
        stream.flush()
        edited = folder / "edited"
        kills = oom_kills()
        part = _part(clock, EDITED)
        seen = first_run.watched(edit.command(command), source, edited, within, part, edit, closely=False)
        again = died_of(edited, seen.code, kills)
        steps = _steps(edited)
        enough = steps >= AS_FAR * (died.failed.steps or 0) + BEYOND or (seen.code == 0 and not seen.cut)
        found = Fitted(edit=edit.name, plain=died, fits=again is None and enough, steps=steps, again=again,
                       ended="" if enough or again is not None else _ended(seen, edited))  # fmt: skip
        if found.fits:
            stream.write("gobrrr: it fits; comparing its numbers at a batch that fits\n")
            stream.flush()
            guarded, told = _numbers(command, source, folder, asked, edit, batch, within, clock, stack, stops)
            found = msgspec.structs.replace(found, guard=guarded, batch=told)
    found = redaction.redacted(msgspec.structs.replace(found, seconds=round(clock.spent, 1)), asked.redact)
    files.write(folder / RECEIPT, msgspec.json.encode(found))
    return found


def _part(clock: first_run.Clock, share: float) -> first_run.Clock:
    return first_run.Clock(time.monotonic(), min(clock.left, share * clock.seconds) / first_run.SEEING)


def _steps(folder: Path) -> int:
    """Steps of the main loop in a run's folder."""
    with contextlib.suppress(GobrrrError):
        main = load_run(folder)[0].main
        return len(main.steps) if main is not None else 0
    return 0


def _ended(seen: first_run.Seen, folder: Path) -> str:
    steps = _steps(folder)
    return f"made {steps} steps in the time" if seen.cut else f"ended with {seen.code} after {steps} steps"


def _numbers(
    command: Sequence[str], source: Path, folder: Path, asked: Asked, edit: ProgramEdit, batch: str,
    within: limits.Limits, clock: first_run.Clock, stack: contextlib.ExitStack,
    stops: Callable[[Callable[[], None]], object],
) -> tuple[Guarded, str]:  # fmt: skip
    """The guard's verdict with both at a batch that fits, and that batch in words."""
    try:
        setting = find("batch", command, source)
        smaller = setting.edit(batch or _smaller(setting), source)
        both = together([smaller, edit], source)
    except GobrrrError as error:
        return Guarded(reasons=(f"no batch that fits is known: {error.message}",)), ""
    tried = {both.name: EditOnTrial(both, asked.accepted, asked.renames)}
    program = Program(tuple(command), source, STEP_NS, limits=within, base=smaller, edits=tried)
    referee = LiveReferee(program, tuning.own_folder(folder, ARMS, stack), seed=asked.seed, until=clock.ends)
    stops(referee.stop)
    try:
        return referee.guard((both.name,)), smaller.name
    finally:
        referee.close()


def _smaller(setting: Setting) -> str:
    if not setting.now.isdigit() or int(setting.now) < 2:
        raise GobrrrError(f"the program's {setting.name} is {setting.now or 'not known'}", "name one: --batch 2")
    return str(max(1, int(setting.now) // 8))
