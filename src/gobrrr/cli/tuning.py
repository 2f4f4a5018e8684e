"""From a program to its receipt and recipe: diagnose, choose remedies, try them, write down what came of it."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TextIO

import msgspec

from gobrrr import __version__
from gobrrr.cli import diagnosis, redaction
from gobrrr.cli.ceilings import interpreter
from gobrrr.errors import GobrrrError
from gobrrr.machine import files
from gobrrr.remedies import registry
from gobrrr.remedies.model import SAFETY
from gobrrr.remedies.probing import unable
from gobrrr.report.model import Report
from gobrrr.rules.model import Saving
from gobrrr.trial import limits, mark
from gobrrr.trial import receipt as receipts
from gobrrr.trial import recipe as recipes
from gobrrr.trial.arm import GRACE_S
from gobrrr.trial.limits import AT_HOME, Limits
from gobrrr.trial.receipt import Receipt
from gobrrr.trial.recipe import Fits, Ingredient, Recipe
from gobrrr.trial.referee import LiveReferee, Program
from gobrrr.trial.search import Candidate
from gobrrr.trial.tuning import Journal, Tuning
from gobrrr.trial.workspace import Workspace, inside, mark_output

JOURNAL, RECEIPT, RECIPE, PATCH, ARMS, DIAGNOSIS, CACHES = (
    "journal.jsonl", "receipt.json", "recipe.toml", "recipe.patch", "arms-", "diagnosis", "caches-",
)  # fmt: skip
REPORT, MARK = "report.json", "report.mark"
"""Files of a diagnosis: what was found, and the mark of who found it."""
MOST_STEPS = 20_000
"""Of the diagnosis, should a program never settle."""
STAPLES = ("compile", "bf16_autocast", "fused_optimizer", "malloc_thresholds")
"""Raced on every program, after what findings call for."""
DIAGNOSING = 0.3
"""Share of a tuning's time after which its diagnosis has seen enough."""
LAST_LINES = 20
"""Of what a program that failed has said, shown."""
LATE = 0.05
"""Share of it by which the rest may be late before it is killed: half of what is promised, to clear up in."""


class Wishes(NamedTuple):
    """What the user asked for. `named` are tried whatever the diagnosis says, `only` alone."""

    seconds: float = 600.0
    named: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    seed: int = 0
    limits: Limits = AT_HOME
    """What the program may write to beside its own copy of the working directory."""
    redact: redaction.Patterns = ()


class Outcome(NamedTuple):
    """What a tuning left behind."""

    receipt: Receipt
    folder: Path
    report: Report


def tune(command: Sequence[str], source: Path, folder: Path, wishes: Wishes, stream: TextIO) -> Outcome:
    """The whole of it. Raises GobrrrError where the program cannot be diagnosed or a name is unknown."""
    from gobrrr.report import live

    registry.composed(())  # names are checked before anything is run
    for name in (*wishes.named, *wishes.without, *wishes.only):
        registry.remedy(name)
    mark_output(folder)
    ends = time.monotonic() + wishes.seconds
    caches = _own_folder(folder, CACHES)
    within = wishes.limits._replace(caches=caches)
    protection = limits.told(source, within)
    stream.write(f"gobrrr: {protection}\n")
    seen = DIAGNOSING * wishes.seconds
    report = _diagnosed(command, source, folder / DIAGNOSIS, stream, within, wishes.redact, seen)
    chosen = candidates(report, wishes)
    missing = unable([c.name for c in chosen], interpreter(command))
    chosen = [c for c in chosen if c.name not in missing]
    listener = live.listener(stream, ends - time.monotonic())
    program = Program(tuple(command), source, float(report.step.plain_wall_ns), report.step.loop, within)
    arms = _own_folder(folder, ARMS)
    referee = LiveReferee(program, arms, seed=wishes.seed, progress=listener.progress, overrun=1.0,
                          until=ends + LATE * wishes.seconds)  # fmt: skip
    journal = Journal(folder / JOURNAL, _about(command, source))
    tuning = Tuning(chosen, program.step_ns, referee, journal, seconds=ends - time.monotonic(), seed=wishes.seed,
                    listener=listener)  # fmt: skip
    if journal.foreign:
        stream.write(f"gobrrr: {journal.foreign} trials there were not measured here with this program: once more\n")
    if earlier := tuning.take_over():
        stream.write(f"gobrrr: {earlier}\n")
    try:
        with listener:
            tuning.run()
    finally:
        referee.close()
        for scratch in (arms, caches):
            shutil.rmtree(scratch, ignore_errors=True)
    notes = (protection, *(f"{name} cannot be applied here: {why}" for name, why in missing.items()))
    receipt = _signed(tuning.receipt(), report, command, source, wishes)
    receipt = redaction.redacted(msgspec.structs.replace(receipt, notes=(*receipt.notes, *notes)), wishes.redact)
    receipts.write(receipts.marked(receipt), folder / RECEIPT)
    if receipt.complete and receipt.kept and receipt.guard.green and receipt.speedup is not None:
        files.write(folder / RECIPE, recipes.to_toml(recipe_of(receipt)).encode())
        if text := by_hand(receipt.kept, command, source, report):
            files.write(folder / PATCH, text.encode())
    return Outcome(receipt, folder, report)


def candidates(report: Report, wishes: Wishes, priors: Mapping[str, Saving] = MappingProxyType({})) -> list[Candidate]:
    """Remedies that the report calls for, staples, and those named; semantic ones only when named. `priors`: savings
    that are known better than from the ledger, those that were rehearsed say; who loses there is not tried."""
    asked = {*wishes.named, *wishes.only}
    third_party = [name for name in dict.fromkeys((*wishes.named, *wishes.only)) if name not in registry.names()]
    found = []
    for name in (*registry.names(), *third_party):
        remedy = registry.remedy(name)
        if name in wishes.without or (wishes.only and name not in wishes.only):
            continue
        predicted = priors.get(name) or remedy.predicts(report)
        if name not in priors and predicted.ceiling_ns <= 0 and _staple(name, report):
            predicted = Saving(0.0, 0.0, float(report.step.plain_wall_ns))
        if name in asked or (predicted.ceiling_ns > 0 and remedy.safety != "semantic"):
            choice = min((f.remedies.index(name) for f in report.findings if name in f.remedies), default=0)
            risk = len(SAFETY) if remedy.precision else SAFETY.index(remedy.safety)
            found.append(Candidate(name, predicted, frozenset(remedy.conflicts), name in asked, choice, risk))
    return found


def _staple(name: str, report: Report) -> bool:
    """Whether it is one of those that experts try on any program: rules and ceilings miss what some of them bring."""
    return name in STAPLES and (report.step.kind == "training" or name != "fused_optimizer")


def _own_folder(folder: Path, prefix: str) -> Path:
    """A new folder that is nobody's but ours: it is deleted afterwards."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder.resolve()))


def _diagnosed(
    command: Sequence[str], source: Path, folder: Path, stream: TextIO, within: Limits, patterns: redaction.Patterns,
    seconds: float,
) -> Report:  # fmt: skip
    """The report of a watched run in a copy of the working directory; an earlier one that was made here is taken.

    Raises GobrrrError where no step was seen.
    """
    from gobrrr.report.json import from_json, to_json

    kind = f"report\0{_about(command, source)}"
    if (earlier := _earlier(folder, kind)) is not None:
        return earlier
    stream.write("gobrrr: diagnosing the program first\n")
    stream.flush()
    _put_aside(folder)
    code = _watched(command, source, folder, within, seconds)
    try:
        report = diagnosis.report_of(folder, list(command), code, patterns=patterns)
    except GobrrrError as error:
        if code and (refused := limits.refusal(folder)):
            raise GobrrrError(f"the program ended with {code}: {refused}", limits.HINT) from None
        if code:
            stream.write(_last_words(folder).replace(str((folder / "work").resolve()), str(source)))
        raise error
    work = str((folder / "work").resolve())
    text = to_json(report).replace(work.encode(), str(source).encode())
    shutil.rmtree(folder / "work", ignore_errors=True)  # made by _watched, in a folder that was not there before
    files.write(folder / REPORT, text)
    files.write(folder / MARK, mark.of(text, kind).encode())
    return from_json(text)


def _last_words(folder: Path) -> str:
    """What a program said at last, its traceback say, made safe for a terminal."""
    from gobrrr.report.escape import plain

    return "".join(f"  | {plain(line)}\n" for line in limits.last_lines(folder, LAST_LINES))


def _earlier(folder: Path, kind: str) -> Report | None:
    """The report of a diagnosis that this user made on this machine; what others say of the program is not taken."""
    from gobrrr.report.json import MAX_BYTES, from_json

    try:
        text, told = files.read(folder / REPORT, MAX_BYTES), files.read(folder / MARK, MAX_BYTES)
    except OSError:
        return None
    return from_json(text) if mark.holds(told.decode("ascii", "replace"), text, kind) else None


def _about(command: Sequence[str], source: Path) -> str:
    """What a diagnosis and trials are of: the command and where it is started."""
    return "\0".join((str(source), *command))


def _put_aside(folder: Path) -> None:
    """What stands where a new diagnosis comes keeps its contents under another name: nobody said to delete it."""
    if os.path.lexists(folder):
        free = (folder.with_name(f"{folder.name}-{n}") for n in range(1, 10_000))
        folder.rename(next(place for place in free if not os.path.lexists(place)))


def _watched(command: Sequence[str], source: Path, folder: Path, within: Limits, seconds: float) -> int:
    """Run the program in its own copy, with an arm's limits, until enough was seen or the time for it is over."""
    from gobrrr.capture.config import Config
    from gobrrr.capture.launch import environment

    folder.mkdir(parents=True)
    work = Workspace(source, folder / "work").make()
    config = Config(str(folder.resolve()), leave=1, stop_after=MOST_STEPS, source=str(source))
    words = [inside(word, source, work) for word in command]
    start = limits.start(words, environment(config), folder, source, within)
    try:
        with (folder / "stdout").open("wb") as out, (folder / limits.STDERR).open("wb") as err:
            process = subprocess.Popen(
                start.command, env=start.env, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
            return _ended(process, seconds)
    finally:
        if start.scratch is not None:
            shutil.rmtree(start.scratch, ignore_errors=True)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Its exit code; after `seconds` it is interrupted as by Ctrl-C, then killed. What it recorded stays."""
    try:
        if (code := _waited(process, seconds)) is not None:
            return code
        os.killpg(process.pid, signal.SIGINT)
        return _waited(process, GRACE_S) or 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _waited(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def _signed(receipt: Receipt, report: Report, command: Sequence[str], source: Path, wishes: Wishes) -> Receipt:
    return msgspec.structs.replace(
        receipt, command=tuple(redaction.shown(command)), folder=str(source), seed=wishes.seed, machine=report.machine,
        date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        versions={**report.versions, "gobrrr": __version__}, script_sha256=script_digest(command, source),
        loop=report.step.loop,
    )  # fmt: skip


def by_hand(kept: Sequence[str], command: Sequence[str], source: Path, report: Report) -> str:
    """What was kept as a diff against the user's files: the script, and the files that findings point to."""
    from gobrrr.remedies.patch import diff

    script = [source / word for word in command[1:2] if word.endswith(".py")]
    named = [Path(span.file) for finding in report.findings for span in finding.where]
    inside = [file for file in (*script, *named) if file.is_file() and file.resolve().is_relative_to(source.resolve())]
    edits = [edit for name in kept if (edit := registry.remedy(name).edit) is not None]
    return diff(inside, edits, source)


def script_digest(command: Sequence[str], source: Path) -> str:
    """SHA-256 of the program's script; empty where there is none (a module, another command)."""
    for word in command[1:2]:
        file = source / word
        if word.endswith(".py") and file.is_file():
            return hashlib.sha256(file.read_bytes()).hexdigest()
    return ""


def recipe_of(receipt: Receipt) -> Recipe:
    """What a receipt kept, ready to be applied."""

    def brought(name: str) -> tuple[float, float, float] | None:
        """Measured in the race, alone or on top of others; of all together where it was measured with others only."""
        trials = [t for t in receipt.trials if t.purpose == "add" and t.remedies == (name,) and t.verdict == "faster"]
        found = trials[-1].speedup if trials else receipt.speedup
        return (found.median, found.low, found.high) if found is not None else None

    assert receipt.speedup is not None
    final = receipt.speedup
    return Recipe(
        recipes.SCHEMA, program=" ".join(receipt.command[1:]), date=receipt.date, gobrrr=__version__,
        speedup=(final.median, final.low, final.high), guard=receipt.guard.verdict,
        fits=Fits(torch=receipt.versions.get("torch", ""), python=receipt.versions.get("python", ""),
                  machine=receipt.machine, script_sha256=receipt.script_sha256),
        remedies=tuple(Ingredient(name, speedup=brought(name), guard=receipt.guard.verdict) for name in receipt.kept),
    )  # fmt: skip


def tell(outcome: Outcome, program: Sequence[str], stream: TextIO, price_per_hour: float | None = None) -> None:
    """The report on a stream, with the files and the next command; `program` as it may be shown."""
    from gobrrr.report import tuning as report

    folder, receipt = outcome.folder, outcome.receipt
    words = " ".join(program)
    if (folder / RECIPE).is_file():
        after = f"gobrrr run --recipe {folder / RECIPE} {words}"
    elif not receipt.complete:
        after = f"gobrrr tune --resume {folder} {words}"
    else:
        after = f"gobrrr report {folder / DIAGNOSIS}"
    report.show(receipt, stream, after, price_per_hour)
    files = [name for name in (RECEIPT, RECIPE, PATCH) if (folder / name).is_file()]
    stream.write(f"files     {', '.join(files)} in {folder}\n")
    stream.flush()
