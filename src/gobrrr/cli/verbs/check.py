"""`gobrrr check`: for continuous integration. Fails on a regression that the statistics hold up, or on findings."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gobrrr.cli import options, streams
from gobrrr.errors import GobrrrError
from gobrrr.pipeline.file_names import NO_BASELINE, REPORT
from gobrrr.rules.verdict.regression import TOLERANCE
from gobrrr.system.run_folder import HOME

if TYPE_CHECKING:  # the engine is imported where it is used: `gobrrr --help` must not wait for it
    from gobrrr.report.told.checked import Checked
    from gobrrr.rules.verdict.report import Report

FORMATS = ("text", "json", "markdown", "sarif", "github")
OWN = ("--against", "--history", "--fail-on", "--tolerance", "--shares")
MAKE = "make a baseline with: gobrrr run --json baseline.json script.py"
OURS = b'"gobrrr.'
"""Beginning of the schema of every file that gobrrr writes."""
INTERRUPTED = (-2, 130)


def prepare(parser: argparse.ArgumentParser) -> None:
    """All options stand before the program, as for `gobrrr run`."""
    parser.usage = "gobrrr check [options] script.py [args] | -m module [args] | -- command [args] | RECORDING"
    parser.epilog = "exit codes: 0 nothing, 1 a regression or findings, 2 asked wrongly, 3 unreliable"
    parser.add_argument(
        "--against", action="append", default=[], metavar="BASELINE",
        help="what `gobrrr run --json BASELINE script.py` has written, or a run's folder; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--history",
        nargs="?",
        type=Path,
        const=Path(HOME),
        metavar="FOLDER",
        help=f"take as a baseline the newest run of the same command in FOLDER ({HOME}), named as --history=FOLDER",
    )
    parser.add_argument(
        "--fail-on", metavar="WHAT",
        help="codes and severities, as BRR405,critical (default: critical; where there is a baseline, nothing)",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=options.more_than_zero, default=100 * TOLERANCE, metavar="PERCENT",
        help=f"by how much a step must surely be longer ({100 * TOLERANCE:.0f})",
    )  # fmt: skip
    parser.add_argument(
        "--shares", action="store_true",
        help="hold shares of the step against each other, not times: for a baseline from another computer",
    )  # fmt: skip
    parser.add_argument("--format", choices=FORMATS, help="default: by -o, or text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the outcome to FILE too: .json .sarif")
    parser.add_argument(
        "--no-rehearsal", dest="rehearsal", action="store_false", help="as for `gobrrr run`: estimate savings"
    )
    options.add_price(parser)
    options.add_redact(parser)


def run(args: argparse.Namespace) -> int:
    """The exit code says it; raises GobrrrError for what was asked wrongly, before anything is started."""
    from gobrrr.report.told.checked import UNRELIABLE

    try:
        return _checked(args)
    except (GobrrrError, BrokenPipeError):
        raise
    except Exception:  # a defect of ours: Python's own exit code for it would say that there is a regression
        traceback.print_exc()
        return UNRELIABLE


def _checked(args: argparse.Namespace) -> int:
    from gobrrr.cli.reading.report import check_target
    from gobrrr.report.told.checked import Against, checked
    from gobrrr.report.told.money import priced
    from gobrrr.rules.verdict.regression import held_against

    wanted = _wanted(args.fail_on or ("" if args.against or args.history else "critical"))
    _check_order(args.program)
    _form(args)
    per_hour = options.price(args)
    check_target(args.output, (*args.against, *args.program[:1]))
    before = [(word, _recorded(word), 0.0) for word in args.against]
    kept = _kept(args.program)
    known = priced(_recorded(kept), per_hour) if kept else None
    before += [_newest(args, known)] if args.history else []
    report, folder = (known, None) if known else _ran(args, before, per_hour)
    for _, each, _ in before:
        _check_machine(each, report.host, report.device.name if report.device else None, args.shares)
    against = [Against(word, held_against(report, each, args.tolerance / 100, shares=args.shares, starts=starts))
               for word, each, starts in before]  # fmt: skip
    if folder is not None and all(each.held.verdict == "steady" for each in against):
        (folder / NO_BASELINE).unlink(missing_ok=True)
    outcome = checked(report, wanted, against)
    _tell(outcome, report, args, sys.stdout if kept else sys.stderr)
    return outcome.exit_code


def _newest(args: argparse.Namespace, known: Report | None) -> tuple[str, Report, float]:
    """The newest run that the program's, or the report that is known already, can be held against: its folder, it, and
    what two starts differ by."""
    from gobrrr.cli.reading.history import baseline_for
    from gobrrr.cli.verbs.run import command_of
    from gobrrr.machine.probe.fingerprint import THREAD_COUNTS, of_hardware
    from gobrrr.machine.probe.system_probe import probe
    from gobrrr.pipeline.redaction import shown
    from gobrrr.recording.model.setup import Setup

    if known is not None:  # one that does not say when it began has none before it
        began = known.setup.began_ns if known.setup else 0
        found = baseline_for(args.history, known.command, known.host, known.setup, began)
    else:
        now = Setup(variables={name: os.environ[name] for name in THREAD_COUNTS if name in os.environ})
        found = baseline_for(args.history, shown(command_of(args.program), args.redact), of_hardware(probe()), now)
    return str(args.history / found[0].folder), found[0].report, found[1]


def _ran(
    args: argparse.Namespace, before: list[tuple[str, Report, float]], per_hour: float | None
) -> tuple[Report, Path]:
    """The report of the program, run now and told as `gobrrr run` tells it, and its folder, which is no baseline yet: a
    check that fails would pass when it is repeated."""
    from gobrrr.capture.process import launch
    from gobrrr.capture.process.config import Config
    from gobrrr.capture.process.gauging import Gauging
    from gobrrr.capture.process.setup import noting
    from gobrrr.cli.verbs.run import command_of
    from gobrrr.machine.probe.fingerprint import of_hardware
    from gobrrr.machine.probe.system_probe import probe
    from gobrrr.system import run_folder

    command = command_of(args.program)
    for _, each, _ in before:
        _check_machine(each, of_hardware(probe()), None, args.shares)
    folder = run_folder.of_run(None, command)
    (folder / NO_BASELINE).touch(0o600)
    setup = noting(command, {})
    with Gauging(folder):
        code = launch.run(command, Config(str(folder.resolve())))
    if code in INTERRUPTED:
        raise KeyboardInterrupt
    from gobrrr.pipeline import runs
    from gobrrr.report.told.checked import UNRELIABLE

    try:
        runs.explain(folder, command, code, patterns=args.redact, rehearsal=args.rehearsal, price=per_hour,
                     setup=setup())  # fmt: skip
    except GobrrrError as error:  # asked rightly, and no verdict
        raise GobrrrError(error.message, error.hint, UNRELIABLE) from None
    except OSError:  # nobody reads stderr any more: the exit code is still asked for
        streams.to_nowhere(2)
    if code:
        raise GobrrrError(f"the program ended with {code}: a check judges only programs that end well",
                          f"the recording is kept: gobrrr report {folder}", UNRELIABLE)  # fmt: skip
    return runs.load(folder / REPORT), folder


def _wanted(text: str) -> tuple[str, ...]:
    """Codes and severities of --fail-on. Raises GobrrrError for a word that is neither."""
    from gobrrr.rules import pages
    from gobrrr.rules.model.finding import SEVERITIES

    words = tuple(filter(None, (word.strip() for word in text.split(","))))
    if text and not words:
        hint = f"give codes or {', '.join(SEVERITIES)}, with commas between"
        raise GobrrrError(f"--fail-on {text!r} names nothing", hint)
    known = tuple(word.lower() if word.lower() in SEVERITIES else word.upper() for word in words)
    for word, given in zip(known, words, strict=True):
        if word not in (*SEVERITIES, *pages.codes()):
            raise GobrrrError(f"--fail-on {given}: neither a code nor one of {', '.join(SEVERITIES)}",
                              "gobrrr explain lists the codes")  # fmt: skip
    return known


def _check_order(program: list[str]) -> None:
    """Raises GobrrrError where our options stand among the program's: it would pass without looking. Behind `--` they
    are the program's own."""
    given = [word for word in program[1:] if word.partition("=")[0] in OWN or _kept(program[:1])]
    if given and program[0] != "--":
        raise GobrrrError(f"{given[0]} stands after {program[0]}, and would go to the program",
                          f"options of gobrrr check come first: gobrrr check {given[0]} ... {program[0]}; the "
                          f"program's own behind --: "
                          f"gobrrr check -- python {program[0]} {given[0]} ...")  # fmt: skip


def _kept(program: list[str]) -> str:
    """The one word that means a recording, a report or a trace, not a program; else empty."""
    from gobrrr.recording.trace_files.others import NSYS
    from gobrrr.recording.trace_files.sources import ARCHIVES, ENDINGS

    if len(program) != 1 or program[0].startswith("-"):  # -m, --, or none
        return ""
    is_folder = Path(program[0]).is_dir() and not (Path(program[0]) / "__main__.py").exists()
    return program[0] if is_folder or program[0].endswith((*ENDINGS, *ARCHIVES, *NSYS)) else ""


def _recorded(word: str) -> Report:
    """The report in a file or a run's folder, or that of a trace. Raises GobrrrError."""
    from gobrrr.cli.reading.report import find as find_report
    from gobrrr.machine.model.machine import UNKNOWN
    from gobrrr.pipeline import runs, traces
    from gobrrr.recording.trace_files.limits import DEFAULT
    from gobrrr.recording.trace_files.sources import find
    from gobrrr.report.text.progress import Patience

    path = Path(word)
    if not path.exists():
        raise GobrrrError(f"{word}: no such file", MAKE)
    if holds_report(path):
        return runs.load(find_report(path))
    try:
        sources = find([word])
    except GobrrrError:
        raise GobrrrError(f"{word}: neither a report of gobrrr nor a trace", MAKE) from None
    if len(sources) > 1:
        raise GobrrrError(f"{word} holds {len(sources)} traces", "name one of them")
    with Patience(f"reading {word}"):
        return traces.diagnosed(sources[0], UNKNOWN, DEFAULT)


def holds_report(path: Path) -> bool:
    """Say whether a path is a report, or a folder with one or with runs; a file says so in its first field."""
    from gobrrr.system import files

    if path.is_dir():
        return (path / REPORT).is_file() or any(path.glob(f"*/{REPORT}"))
    try:
        with files.opened(path) as file:
            return OURS in file.read(len(OURS) + 64)
    except OSError as error:
        raise GobrrrError(f"cannot read {path}: {error.strerror}", "check its permissions") from None


def _check_machine(before: Report, host: str, device: str | None, shares: bool) -> None:
    """Raises GobrrrError for a baseline of another computer, unless shares are asked for."""
    from gobrrr.rules.verdict.regression import elsewhere

    if not shares and (reason := elsewhere(before, host, device)):
        raise GobrrrError(f"{reason}, and times of two computers say nothing of the program",
                          "record one here: gobrrr run --json baseline.json script.py; or compare shares of the step: "
                          "--shares")  # fmt: skip


def _tell(outcome: Checked, report: Report, args: argparse.Namespace, stream: TextIO) -> None:
    """The outcome as text where the report was told, and in the form that was asked for into its file or to stdout:
    the report's findings, with the regression where there is one, for forms that show findings at their lines."""
    from gobrrr.cli.reading.report import put
    from gobrrr.report.forms import formats

    form, view = _form(args), formats.View(os.getcwd())  # noqa: PTH109 - a string is wanted
    if form == "text" or stream is sys.stderr or args.output:
        try:
            stream.write("\n" if stream is sys.stderr else "")
            formats.show(outcome, stream, view)
        except OSError:  # nobody reads stderr any more: the exit code is still asked for
            streams.to_nowhere(2)
    if form == "text" and not args.output:
        return
    noun = report if form in ("sarif", "github") else outcome
    put(formats.render(noun, form, view._replace(regression=outcome.regression)), args.output)


def _form(args: argparse.Namespace) -> str:
    """Return the form asked for, by name or by the file's suffix. Raises GobrrrError for a form that a check does not
    have, and for a file that has no folder: a program may run for long before it is written."""
    from gobrrr.report.forms.formats import by_suffix

    form: str = args.format or by_suffix(args.output or "")
    if form not in FORMATS:
        why = f"{args.output}: a check cannot be written in the format {form}"
        raise GobrrrError(why, f"choose one of {', '.join(FORMATS)}")
    if args.output and not Path(args.output).absolute().parent.is_dir():
        raise GobrrrError(f"cannot write {args.output}", "name a file in a folder that exists")
    return form
