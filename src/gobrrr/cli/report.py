"""`gobrrr report`: show a run again, in another form."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import redaction
from gobrrr.errors import GobrrrError
from gobrrr.machine import files

if TYPE_CHECKING:  # the renderers are imported where they are used: `gobrrr --help` must not wait for them
    from gobrrr.report.model import Report

RUNS = ".gobrrr"
NAME = "report.json"
SUFFIXES = {".json": "json", ".md": "markdown", ".markdown": "markdown"}


class ReportCommand:
    """Re-renders `.gobrrr/<run>/report.json`; needs no torch."""

    name = "report"
    help = "show the report of an earlier run again"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Arguments of the verb."""
        parser.add_argument("run", nargs="?", default=RUNS, help=f"its folder or {NAME} (default: the latest)")
        parser.add_argument("--format", choices=("text", "json", "markdown"), help="default: by -o, or text")
        parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of standard output")
        add_options(parser)
        redaction.add_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, render, write; raises GobrrrError for what is not a report and for a file that cannot be written."""
        report = redaction.redacted(load(find(Path(args.run))), args.redact)
        form = args.format or SUFFIXES.get(Path(args.output or "").suffix, "text")
        if args.output:
            _write(Path(args.output), _render(report, form))
        else:
            show(report, form, verbose=args.verbose, ops=args.ops)
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much of a report is shown as text."""
    parser.add_argument("-v", "--verbose", action="store_true", help="the whole report, not its first 30 lines")
    parser.add_argument("--ops", action="store_true", help="the ten most expensive ops, not three")


def show(report: Report, form: str, *, verbose: bool = False, ops: bool = False) -> None:
    """Write it to stdout: text as it suits the terminal, json and markdown as they are."""
    if form == "text":
        from gobrrr.report import text

        text.show(report, sys.stdout, verbose=verbose, ops=ops)
    else:
        sys.stdout.buffer.write(_render(report, form))


def _render(report: Report, form: str) -> bytes:
    from gobrrr.report.json import to_json
    from gobrrr.report.markdown import to_markdown
    from gobrrr.report.place import reader
    from gobrrr.report.text import render

    root = str(Path.cwd())
    if form == "json":
        return to_json(report)
    text = to_markdown(report, root) if form == "markdown" else render(report, root=root, source=reader(root))
    return text.encode("utf-8", "replace")


def _write(path: Path, content: bytes) -> None:
    """All or nothing: an interrupted write leaves the older file as it was."""
    try:
        files.write(path, content, files.AS_USUAL)
    except OSError as error:
        raise GobrrrError(f"{path}: {error.strerror}", "name another file with -o") from None


command = ReportCommand()
