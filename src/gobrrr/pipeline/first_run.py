"""Begin a tuning: watch the program once, in a copy of its folder, for a part of the minutes."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.pipeline import redaction, runs
from gobrrr.pipeline.file_names import MARK, PAGE, REPORT
from gobrrr.pipeline.out_of_memory import died_of
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from gobrrr.rules.verdict.report import Report
from gobrrr.system import files
from gobrrr.trial.arm.arm import GRACE_S
from gobrrr.trial.arm.process_group import Family
from gobrrr.trial.arm.ranks import launcher, of_one_rank
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.sandbox import limits, signature
from gobrrr.trial.sandbox.limits import AT_HOME, Limits
from gobrrr.trial.sandbox.workspace import WORK, Workspace, as_theirs, inside
from gobrrr.trial.sandbox.writes import FIRST

MOST_STEPS = 20_000
"""Most steps of the diagnosis, should a program never settle."""
SEEING, STARTING, AT_LEAST = 0.3, 0.5, 0.1
"""Shares of the minutes after which a diagnosis has seen enough; until which it waits for a first step, since what
comes later leaves no time for another start; and which it sees of steps that come late."""
ENDING, REHEARSING, PROBING = 0.05, 0.1, 0.2
"""Shares of what is left for a program to end when it is told to, for the rehearsal, and for probing remedies."""
WAITING, LONGEST_WAIT = 0.06, 20
"""Share of the minutes, and seconds, that a diagnosis waits for a second epoch which is near: only there it is seen
whether samples come again, and may be kept."""
STARTS = 14
"""Starts of the program one after another that a tuning has room for: about nine in race, guard and confirmation (see
trial.tuning), which have 70 % of the minutes."""
DIAGNOSING = "gobrrr.trial.arm.inside:Diagnosing"
ALONE_S = 100.0
"""Seconds of which a rank by itself is seen for a third (proposed: some hundred steps of most programs)."""
POLL_S, LOOK_S = 0.05, 0.5
LAST_LINES = 20
"""Last lines of a failed program's output that are shown."""


class Clock(NamedTuple):
    """The minutes of a tuning, from the start of the command on."""

    began: float
    """By time.monotonic()."""
    seconds: float

    @property
    def ends(self) -> float:
        """When they are over, by time.monotonic()."""
        return self.began + self.seconds

    @property
    def spent(self) -> float:
        """Seconds until now."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left; none below zero."""
        return max(0.0, self.seconds - self.spent)


class Seen(NamedTuple):
    """How a watched run ended. `cut`: not by itself, its time was over. `start_s`: seconds until its first step."""

    code: int
    cut: bool = False
    start_s: float | None = None


def diagnosed(
    command: Sequence[str], source: Path, folder: Path, stream: TextIO, within: Limits, patterns: redaction.Patterns,
    clock: Clock, also: Sequence[str] = (), *, base: ProgramEdit | None = None, rehearsal: bool = True,
) -> Report:  # fmt: skip
    """The report of a watched run in a copy of the working directory; an earlier one that was made here is taken.
    Remedies that are to be rehearsed `also`, whatever the findings say, if there is to be a `rehearsal` at all.
    `base`: put on the copy first.

    Raises GobrrrError where no step was seen, or too late for any other start.
    """
    kind = f"report\0{about(command, source)}{base.name if base is not None else ''}"
    if (earlier := _earlier(folder, kind)) is not None:
        return earlier
    stream.write("gobrrr: diagnosing the program first\n")
    stream.flush()
    put_aside(folder)
    work = folder / WORK
    try:
        return _made(command, source, folder, stream, within, patterns, clock, kind, also, base, rehearsal)
    finally:  # made by watched(), in a folder that was not there before
        shutil.rmtree(work, ignore_errors=True)


def _made(
    command: Sequence[str], source: Path, folder: Path, stream: TextIO, within: Limits, patterns: redaction.Patterns,
    clock: Clock, kind: str, also: Sequence[str], base: ProgramEdit | None, rehearsal: bool,
) -> Report:  # fmt: skip
    from gobrrr.recording.run_folder.run import load_run
    from gobrrr.report.forms.json import from_json, to_json

    work = folder / WORK
    seen = watched(command, source, folder, within, clock, base)
    if seen.start_s is not None and seen.start_s > clock.left:
        raise _too_late(f"the program takes {seen.start_s:.0f} s until its first step", seen.start_s, clock)
    late = _too_late(f"no whole step of it came within {clock.spent:.0f} s", clock.spent, clock)
    try:
        report = runs.report_of(
            folder, list(command), seen.code, patterns=patterns, late=late if seen.cut else None,
            rehearsal=rehearsal, rehearsal_s=REHEARSING * clock.left, also=also,
        )  # fmt: skip
    except GobrrrError as error:
        if seen.code and (refused := limits.refusal(folder)):
            raise GobrrrError(f"the program ended with {seen.code}: {refused}", limits.HINT) from None
        if seen.code and (died := died_of(folder, seen.code)) is not None:
            raise GobrrrError(
                f"{died.sentence}; {died.reason}", "gobrrr run tells what would fit", UNMEASURED
            ) from None
        if seen.code:
            stream.write(as_theirs(_last_words(folder), source, work))
        raise error
    if (report.world_size or 1) > 1 and load_run(folder)[0].start.spawned:
        raise GobrrrError("the program starts its ranks itself, and none of them can be stopped alone",
                          "let torchrun start them: torchrun --nproc-per-node 2 train.py", UNMEASURED)  # fmt: skip
    text = as_theirs(to_json(report).decode(), source, work).encode()
    (folder / limits.STDERR).unlink(missing_ok=True)
    files.write(folder / REPORT, text)
    files.write(folder / MARK, signature.of(text, kind).encode())
    report = from_json(text)
    view = View(str(source), anywhere=True, mask=redaction.masker(patterns))
    files.write(folder / PAGE, formats.render(report, "html", view))
    return report


def _too_late(what: str, start_s: float, clock: Clock) -> GobrrrError:
    """Nothing can be measured: another start does not fit into the minutes. Says which would do."""
    minutes = math.ceil(STARTS * start_s / 60)
    share = f"{min(1.0, clock.spent / clock.seconds):.0%} of --minutes is spent"
    return GobrrrError(
        f"{what}, and {share}: no time is left for trials", f"give --minutes {minutes} or more", UNMEASURED
    )


def _last_words(folder: Path) -> str:
    """Return a program's last lines, its traceback say, made safe for a terminal."""
    from gobrrr.system.escape import plain

    return "".join(f"  | {plain(line)}\n" for line in limits.last_lines(folder, LAST_LINES))


def _earlier(folder: Path, kind: str) -> Report | None:
    """The report of a diagnosis that this user made on this machine; what others say of the program is not taken."""
    from gobrrr.report.forms.json import MAX_BYTES, from_json

    try:
        text, told = files.read(folder / REPORT, MAX_BYTES), files.read(folder / MARK, MAX_BYTES)
    except OSError:
        return None
    return from_json(text) if signature.holds(told.decode("ascii", "replace"), text, kind) else None


def about(command: Sequence[str], source: Path) -> str:
    """Return the mark of a diagnosis and its trials: the command and where it is started."""
    return "\0".join((str(source), *command))


def put_aside(place: Path) -> None:
    """Rename what stands where something new comes: nobody said to delete it."""
    if os.path.lexists(place):
        free = (place.with_name(f"{place.name}-{n}") for n in range(1, 10_000))
        place.rename(next(name for name in free if not os.path.lexists(name)))


def watched(
    command: Sequence[str], source: Path, folder: Path, within: Limits, clock: Clock, base: ProgramEdit | None = None,
    closely: bool = True,
) -> Seen:  # fmt: skip
    """Run the program in its own copy, with an arm's limits and with the edit `base`, until enough was seen or the time
    for it is over. Not `closely`: its steps are counted alone, which takes no memory, and it is not left."""
    from gobrrr.capture.process.config import Config
    from gobrrr.capture.process.launch import environment

    folder.mkdir(parents=True)
    work = Workspace(source, folder / WORK).make()
    if base is not None:
        base.put_on(work)
    config = Config(str(folder.resolve()), stop_after=MOST_STEPS, source=str(source), watcher=DIAGNOSING, first=FIRST)
    if closely:
        config.leave = _waiting(clock)
    else:
        config.budget_ns = -1
    words = [inside(word, source, work) for word in command]
    start = limits.start(words, environment(config), folder, source, within, base.env if base is not None else {})
    try:
        with (folder / limits.STDERR).open("ab") as err:
            process = subprocess.Popen(
                start.command, env=start.env, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=err, start_new_session=True,
            )  # fmt: skip
        return _ended(process, folder, clock)
    finally:
        if start.scratch is not None:
            shutil.rmtree(start.scratch, ignore_errors=True)


def step_alone_ns(command: Sequence[str], source: Path, folder: Path, threads: int) -> float:
    """Return the mean step in ns of one rank of a job by itself, with as many `threads` as in the job, in a copy of the
    working directory, within ALONE_S / 3 after its first step.

    Raises GobrrrError where it makes no step there.
    """
    from gobrrr.ledger.job.own_steps import alone
    from gobrrr.recording.run_folder.run import load_run

    if not launcher(command):
        raise GobrrrError(
            "--baseline starts one rank by torchrun or accelerate launch",
            "gobrrr run --baseline -- torchrun ... train.py",
        )
    try:
        words = ["env", f"OMP_NUM_THREADS={threads}", *of_one_rank(command)]  # torchrun sets it for several ranks alone
        watched(words, source, folder, AT_HOME, Clock(time.monotonic(), ALONE_S))
        walls, _ = alone(load_run(folder)[0])
    finally:
        shutil.rmtree(folder / WORK, ignore_errors=True)
    if not len(walls):
        raise GobrrrError("one rank by itself makes no step within the time", "leave --baseline out")
    return float(walls.mean())


def _waiting(clock: Clock) -> int:
    """Seconds that a diagnosis which has seen enough waits for a second epoch."""
    return max(1, min(LONGEST_WAIT, int(WAITING * clock.seconds)))


def _ended(process: subprocess.Popen[bytes], folder: Path, clock: Clock) -> Seen:
    """Its end; when the time for it is over it is interrupted as by Ctrl-C, then killed. What it recorded stays."""
    began, looked, start_s = time.monotonic(), 0.0, None
    family = Family(process.pid)
    try:
        while (code := _waited(process, POLL_S)) is None:
            lasted = time.monotonic() - began
            if start_s is None and any(folder.glob("rank*.journal")):  # made with the first step
                start_s = lasted
            if clock.spent > _until(start_s, clock.seconds):
                family.members()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                _waited(process, min(GRACE_S, ENDING * clock.left))
                return Seen(0, True, start_s)
            if lasted - looked > LOOK_S:
                looked = lasted
                family.members()
                limits.shorten(folder)
        return Seen(code, False, start_s)
    finally:
        family.signal(signal.SIGKILL)
        process.wait()


def _until(start_s: float | None, seconds: float) -> float:
    """Seconds of the tuning that its diagnosis has, by when the first step came."""
    if start_s is None:
        return STARTING * seconds
    return max(SEEING * seconds, start_s + AT_LEAST * seconds)


def _waited(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None
