"""The runs of each program one after another (JSON schema gobrrr.history/1): what a step took, what changed between two
runs, and since which one a step is surely longer or a peak larger. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import msgspec

from gobrrr.ledger.steps.median_interval import student
from gobrrr.machine.probe.fingerprint import THREAD_COUNTS
from gobrrr.recording.model.setup import Setup
from gobrrr.rules.verdict.regression import TOLERANCE, crowded, held_against, ratio_interval, unsure
from gobrrr.rules.verdict.report import Report
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.system.commands import program_of

SCHEMA = "gobrrr.history/1"
START, FEW = 0.01, 3
"""Deviation of two starts of a program of which nothing is known (decision 0013), and as how many starts it counts
(proposed)."""
PEAK = 0.05
"""Share by which a peak must differ (proposed: peaks of starts of one program differ by 0.4 to 1.8 %)."""
CUT_OFF = (-2, -15, 130, 143)
"""Exit codes of a program that was told to end."""
SHORT = 7
"""Digits of a commit, as git shortens it."""
SOURCE = ("commit", "branch", "script")
"""Where one run has none of these, nobody knew it."""


class Kept(NamedTuple):
    """A run's report: the name of its folder, and when it began, ns since the epoch."""

    folder: str
    began_ns: int
    report: Report


class Difference(msgspec.Struct, frozen=True):
    """Something that two runs were not alike in; empty where one of them had none."""

    what: str
    before: str
    now: str


class Change(msgspec.Struct, frozen=True):
    """Change of the figure of a step or a peak against the run before, or the runs of the level before: now / then."""

    ratio: float
    low: float = 0.0
    high: float = 0.0
    """95 % interval; 0 for a peak, of which each run has one."""
    is_last: bool = False
    """Only the newest run shows it: whether it stays is not known yet."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `state`: sound, disturbed, unreliable, cut or failed, with the reason in `why`."""

    number: int
    folder: str
    began_ns: int
    state: str
    why: str = ""
    step_ns: int
    low_ns: int
    high_ns: int
    peak_bytes: int | None
    bound: str
    verdict: str
    findings: tuple[str, ...]
    """Codes, doubts about the measurement left out."""
    before: int | None = None
    """Number of the last sound run before it on the same computer, else on any; else of the last run. Null for the
    first."""
    is_elsewhere: bool = False
    """That run was on another computer: no times are compared."""
    step_change: Change | None = None
    peak_change: Change | None = None
    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()
    """Findings that the run before had not, and had; of sound runs."""
    differences: tuple[Difference, ...] = ()
    """Between the run before and this one."""
    step_since: Change | None = None
    peak_since: Change | None = None
    """Set where a new level begins: a step surely longer or shorter than in the level before, a peak that differs."""
    place: int = 0
    """Runs with the same number can be compared in time: of one computer, device and kind of step."""
    command: tuple[str, ...] = ()
    exit_code: int | None = None
    machine: str = ""
    device: str = ""
    threads: int = 1
    ranks: int = 1
    versions: dict[str, str] = {}
    setup: Setup | None = None


class Program(msgspec.Struct, frozen=True):
    """The runs of one program, the oldest first."""

    name: str
    runs: tuple[Run, ...]
    levels: tuple[Run, ...] = ()
    """The newest run with which the step surely changed, and that of the peak; also where they are left out of runs."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All that is told of a folder of runs."""

    schema: str = SCHEMA
    folder: str
    programs: tuple[Program, ...]
    """The one that ran last first."""
    unread: tuple[tuple[str, str], ...] = ()
    """(folder of a run, why it has no report that can be read)."""


def history(folder: str, every: Iterable[Kept], unread: Sequence[tuple[str, str]] = (), root: str = "") -> History:
    """Return the history of runs, in the order in which they began; scripts below `root` are named from there."""
    by_program: dict[str, list[Kept]] = {}
    for kept in sorted(every, key=lambda each: (each.began_ns, each.folder)):
        name = program_of(kept.report.command, root) or "?"
        by_program[name] = [*by_program.pop(name, ()), kept]  # the one that ran last becomes the last
    programs = (Program(name, runs := tuple(_runs(kept)), _levels(runs)) for name, kept in by_program.items())
    return History(folder=folder, programs=tuple(programs)[::-1], unread=tuple(unread))


def _levels(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    begun = ([run for run in runs if run.step_since], [run for run in runs if run.peak_since])
    return tuple(found[-1] for found in begun if found)


def state_of(report: Report) -> tuple[str, str]:
    """How far a run can be used: sound, disturbed (its times alone), unreliable, cut or failed, and why."""
    if report.out_of_memory is not None:
        return "failed", "it died of memory"
    if report.exit_code:
        cut = report.exit_code in CUT_OFF
        return ("cut", "it was told to end") if cut else ("failed", f"it ended with {report.exit_code}")
    if report.verdict.bound == "unreliable":
        return "unreliable", report.verdict.sentence
    reason = crowded(report) or ((why := unsure(report)) and f"it {why}")
    return ("disturbed", reason) if reason else ("sound", "")


def baseline(
    every: Iterable[Kept], command: Sequence[str], host: str, setup: Setup | None = None
) -> tuple[Kept, float] | None:
    """The newest sound run of the same command on the computer `host`, with the remedies and the counts of threads of
    `setup`, that is no odd one behind FEW others, and what one more start differs by, as in `_starts`."""
    fitting = [kept for kept in every if kept.report.host == host and kept.report.command[1:] == tuple(command[1:])
               and _is_set_up_as(kept.report.setup, setup) and state_of(kept.report)[0] == "sound"]  # fmt: skip
    fitting.sort(key=lambda kept: (kept.began_ns, kept.folder))
    level = _levels_in([(number, kept.report) for number, kept in enumerate(fitting)], _other_step)[1]
    sure = [kept for kept in fitting if len(level) >= FEW and kept.report is level[-1]]
    return ((sure or fitting)[-1], _starts(level)) if fitting else None


def _is_set_up_as(then: Setup | None, now: Setup | None) -> bool:
    """An older report does not say its variables; it had no remedies, or does not say them either."""
    if (then or Setup()).remedies != (now or Setup()).remedies:
        return False
    if then is None or now is None:
        return True
    return all(then.variables.get(name) == now.variables.get(name) for name in THREAD_COUNTS)


def _runs(every: Sequence[Kept]) -> Iterator[Run]:
    """Tell each run of a program beside the last sound one of its computer; where there is none beside one of another,
    or an unsound one, by which no time is compared."""
    places: dict[tuple[str, str, str], _Place] = {}
    newest: tuple[Run, Report] | None = None
    found: list[Run] = []
    for number, kept in enumerate(every, 1):
        report, (state, why) = kept.report, state_of(kept.report)
        device = report.device.name if report.device else ""
        place = places.setdefault((report.host or report.machine, device, report.step.kind), _Place(len(places)))
        told = Run(
            number=number, folder=kept.folder, began_ns=kept.began_ns, state=state, why=why,
            step_ns=report.step.plain_wall_ns, low_ns=report.step.low_ns, high_ns=report.step.high_ns,
            peak_bytes=_peak(report) or None, bound=report.verdict.bound, verdict=report.verdict.sentence,
            findings=tuple(dict.fromkeys(each.code for each in report.findings if not is_doubt(each))),
            place=place.number, command=report.command, exit_code=report.exit_code, machine=report.machine,
            device=device, threads=report.threads, ranks=report.world_size or 1, versions=report.versions,
            setup=report.setup,
        )  # fmt: skip
        if before := place.last or newest:
            told = _beside(told, report, *before)
        if state == "sound":
            place.sound.append((number, report))
            place.last = told, report
        if state == "sound" or newest is None or newest[0].state != "sound":
            newest = told, report
        found.append(told)
    steps, peaks = dict[int, Change](), dict[int, Change]()
    for place in places.values():
        steps |= _levels_in(place.sound, _other_step)[0]
        peaks |= _levels_in([each for each in place.sound if _peak(each[1])], _other_peak)[0]
    for told in found:
        yield msgspec.structs.replace(told, step_since=steps.get(told.number), peak_since=peaks.get(told.number))


@dataclass
class _Place:
    """Sound runs that can be compared in time, and the last of them."""

    number: int
    last: tuple[Run, Report] | None = None
    sound: list[tuple[int, Report]] = field(default_factory=list)


Level = list[Report]


def _levels_in(
    sound: Sequence[tuple[int, Report]], change: Callable[[Report, Level], Change | None]
) -> tuple[dict[int, Change], Level]:
    """Return the runs with which a new level begins, by how much each differs from the level before, and the last
    level. Two runs in a row must differ the same way: one odd run begins none. The newest may still be one."""
    found: dict[int, Change] = {}
    level: Level = []
    odd: tuple[int, Report, Change] | None = None
    for number, now in sound:
        by = change(now, level) if level else None
        if by is None:
            level.append(now)
            odd = None
        elif odd is not None and (odd[2].ratio > 1) == (by.ratio > 1):
            found[odd[0]], level, odd = odd[2], [odd[1], now], None
        else:
            odd = number, now, by
    return {**found, odd[0]: msgspec.structs.replace(odd[2], is_last=True)} if odd is not None else found, level


def _peak(report: Report) -> int:
    return max(0, report.memory.peak or 0)


def _middle(level: Level, size: Callable[[Report], int]) -> Report:
    """The median run: one odd run moves it little, and a slow drift does not take it along."""
    return sorted(level, key=size)[(len(level) - 1) // 2]


def _wall(report: Report) -> int:
    return report.step.plain_wall_ns


def _other_step(now: Report, level: Level) -> Change | None:
    """The change of the step where it surely is one, by the rule of `gobrrr check`."""
    before, starts = _middle(level, _wall), _starts(level)
    found = Change(*ratio_interval(now, before, starts))
    is_faster = found.high * (1 + TOLERANCE) < 1
    return found if is_faster or held_against(now, before, starts=starts).verdict == "regression" else None


def _starts(level: Level) -> float:
    """Half of the 95 % interval, on a log scale, of what one more start of a program differs by from these: their
    deviation from one to the next (von Neumann, 1941: a drift is none), and START, which counts as FEW starts."""
    logs = [math.log(max(1, _wall(each))) for each in level]
    freedom = FEW + len(logs) - 1
    squares = FEW * START**2 + sum((b - a) ** 2 / 2 for a, b in pairwise(logs))
    return student(freedom) * math.sqrt(squares / freedom * (1 + 1 / len(logs)))


def _other_peak(now: Report, level: Level) -> Change | None:
    found = Change(_peak(now) / _peak(_middle(level, _peak)))
    return None if 1 / (1 + PEAK) <= found.ratio <= 1 + PEAK else found


def _beside(told: Run, now: Report, before_told: Run, before: Report) -> Run:
    """The run with what is not as it was in the run before."""
    sound, is_elsewhere = told.state == before_told.state == "sound", told.place != before_told.place
    peaks = _peak(now), _peak(before)
    return msgspec.structs.replace(
        told, before=before_told.number, is_elsewhere=is_elsewhere,
        step_change=Change(*ratio_interval(now, before)) if sound and not is_elsewhere else None,
        peak_change=Change(peaks[0] / peaks[1]) if sound and not is_elsewhere and all(peaks) else None,
        came=tuple(code for code in told.findings if sound and code not in before_told.findings),
        went=tuple(code for code in before_told.findings if sound and code not in told.findings),
        differences=tuple(_differences(told, before_told)),
    )  # fmt: skip


def _differences(now: Run, before: Run) -> Iterator[Difference]:
    """Yield what may be the reason, source first. What one of two reports does not say at all is no difference."""
    here, then = _aspects(now), _aspects(before)
    was_noted = now.setup is not None and before.setup is not None
    words = Counter(_grouped(before.command)), Counter(_grouped(now.command))
    gone, come = ([*(words[0] - words[1]).elements()], [*(words[1] - words[0]).elements()])
    if gone or come:
        yield Difference("arguments", " ".join(gone), " ".join(come))
    for what in then | here:
        old, new = then.get(what, ""), here.get(what, "")
        if old != new and ((old and new) or (was_noted and what not in SOURCE)):
            yield Difference(what, old, new)


def _aspects(run: Run) -> dict[str, str]:
    setup = run.setup or Setup()
    return {
        "commit": setup.commit[:SHORT] + "+" * bool(setup.edited), "branch": setup.branch, "script": setup.script,
        "remedies": " ".join(setup.remedies), **setup.variables, **run.versions, "machine": run.machine,
        "device": run.device, "threads": str(run.threads), "ranks": str(run.ranks),
    }  # fmt: skip


def _grouped(command: Sequence[str]) -> list[str]:
    """Words behind the interpreter, each option with the value that follows it."""
    found: list[str] = []
    for word in command[1:]:
        takes = bool(found) and found[-1].startswith("-") and not {" ", "="} & set(found[-1])
        if takes and not word.startswith("-"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found
