"""`gobrrr report`: show a run again, in another form."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import price, redaction
from gobrrr.errors import GobrrrError
from gobrrr.machine import files
from gobrrr.report import formats
from gobrrr.report.formats import View

if TYPE_CHECKING:  # the renderers are imported where they are used: `gobrrr --help` must not wait for them
    from gobrrr.report.history import StepTime
    from gobrrr.report.model import Report

RUNS = ".gobrrr"
NAME = "report.json"


class ReportCommand:
    """Re-renders `.gobrrr/<run>/report.json`; needs no torch."""

    name = "report"
    help = "show the report of an earlier run again"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Arguments of the verb."""
        parser.add_argument("run", nargs="?", default=RUNS, help=f"its folder or {NAME} (default: the latest)")
        add_formats(parser)
        add_options(parser)
        price.add_option(parser)
        redaction.add_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, render, write; raises GobrrrError for what is not a report and for a file that cannot be written."""
        from gobrrr.report.money import priced

        file = find(Path(args.run))
        report, form = redaction.redacted(priced(load(file), price.asked(args)), args.redact), format_of(args)
        steps = steps_beside(file, report) if form == "html" else ()
        view = View(str(Path.cwd()), mask=redaction.masker(args.redact), recorded_ns=file.stat().st_mtime_ns,
                    steps=steps)  # fmt: skip
        tell(report, view, args)
        return 0


def find(path: Path) -> Path:
    """The report that `path` means: itself, the one in it, or the latest of the runs in it."""
    if path.is_file():
        return path
    if (path / NAME).is_file():
        return path / NAME
    runs = [run for run in path.glob(f"*/{NAME}") if run.is_file()] if path.is_dir() else []
    if not runs:
        raise GobrrrError(f"{path}: no {NAME} here", "make one with: gobrrr run script.py")
    return max(runs, key=lambda run: (run.stat().st_mtime_ns, str(run)))


def load(path: Path) -> Report:
    """The report in `path`; raises GobrrrError where it cannot be read and TraceError where it is not a report."""
    from gobrrr.report.json import MAX_BYTES, from_json

    try:
        data = files.read(path, MAX_BYTES)
    except OSError as error:
        raise GobrrrError(f"{path}: {error.strerror}", "is it yours to read?") from None
    return from_json(data, str(path))


def steps_beside(file: Path, report: Report) -> tuple[StepTime, ...]:
    """Every step's time, where the recording lies beside its report and can be read."""
    from gobrrr.recording.run import load_run
    from gobrrr.report.history import step_times

    try:
        recordings = load_run(file.parent)
    except (GobrrrError, OSError):
        return ()
    return next((step_times(recording) for recording in recordings if recording.start.rank == report.rank), ())


def add_formats(parser: argparse.ArgumentParser) -> None:
    """--format and -o."""
    parser.add_argument("--format", choices=formats.names(), help="default: by -o, or text")
    suffixes = " ".join(form.suffixes[0] for form in formats.FORMATS if form.suffixes)
    parser.add_argument("-o", "--output", metavar="FILE", help=f"write to FILE instead of standard output: {suffixes}")


def format_of(args: argparse.Namespace) -> str:
    """The form that was asked for, by name or by the file's suffix."""
    return args.format or formats.by_suffix(args.output or "")


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much of a report is shown as text."""
    parser.add_argument("-v", "--verbose", action="store_true", help="the whole report, not its first 30 lines")
    parser.add_argument("--ops", action="store_true", help="the ten most expensive ops, not three")


def tell(report: Report, view: View, args: argparse.Namespace) -> None:
    """Into the file of -o, or to stdout: text as it suits the terminal, other forms as they are."""
    form = format_of(args)
    if args.output:
        write(Path(args.output), formats.render(report, form, view))
    elif form == "text":
        from gobrrr.report import text

        text.show(report, sys.stdout, verbose=args.verbose, ops=args.ops, mask=view.mask)
    else:
        sys.stdout.buffer.write(formats.render(report, form, view))


def write(path: Path, content: bytes) -> None:
    """All or nothing: an interrupted write leaves the older file as it was."""
    try:
        files.write(path, content, files.AS_USUAL)
    except OSError as error:
        raise GobrrrError(f"{path}: {error.strerror}", "name another file with -o") from None


command = ReportCommand()
