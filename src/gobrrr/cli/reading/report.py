"""`gobrrr report`: show a run again, in another form."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.cli import options, streams
from gobrrr.errors import GobrrrError
from gobrrr.ledger.model import WAYS
from gobrrr.pipeline import redaction
from gobrrr.pipeline.file_names import JOB, RECEIPT, REPORT, SWEEP
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import SORTS, View
from gobrrr.system import files
from gobrrr.system.secrets import masked_text

if TYPE_CHECKING:  # the renderers are imported where they are used: `gobrrr --help` must not wait for them
    from gobrrr.ledger.job.ranks import Job
    from gobrrr.recording.run_folder.run import Recording
    from gobrrr.rules.verdict.report import Report
    from gobrrr.trial.receipt.receipt import Receipt
    from gobrrr.trial.receipt.swept import Swept

RUNS = ".gobrrr"
NOUNS = (REPORT, RECEIPT, SWEEP)
TEN = 10
"""Rows of a table where no number is said."""
NO_NUMBER = -1
"""Value of `--ops` given without a number."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "run", nargs="?", default=RUNS, help=f"its folder, {REPORT}, {RECEIPT} or {SWEEP} (default: the latest)"
    )
    add_formats(parser)
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    add_options(parser, tables=True)
    options.add_price(parser)
    options.add_redact(parser)


def run(args: argparse.Namespace) -> int:
    """Read, render, write; raises GobrrrError for what is not a report and for a file that cannot be written."""
    from gobrrr.pipeline.runs import load
    from gobrrr.report.told.money import priced

    file = find(Path(args.run))
    check_target(args.output, [str(file)])
    if (noun := receipt_in(file) or _sweep_in(file) or job_in(file)) is not None:
        show(redaction.redacted(noun, args.redact), format_of(args), args.output, View(str(Path.cwd())))
        return 0
    job = job_in(file.with_name(JOB)) if file.name == REPORT and (file.with_name(JOB)).is_file() else None
    if job is not None and format_of(args) == "text":
        show(redaction.redacted(job, args.redact), "text", args.output, View(str(Path.cwd())))
        if args.output:
            return 0
        print(f"\nrank {load(file).rank}:\n")
    report, form = redaction.redacted(priced(load(file), options.price(args)), args.redact), format_of(args)
    view = View(str(Path.cwd()), mask=redaction.masker(args.redact), recorded_ns=file.stat().st_mtime_ns)
    if formats.draws(form):
        view = view._replace(ranks=ranks_beside(file, report, args))
    tell(report, beside(view, file, report) if form == "html" else view, args)
    return 0


def find(path: Path) -> Path:
    """The report, receipt or sweep that `path` means: itself, the one in it, or the latest of the runs in it."""
    if path.is_file():
        return path
    for name in NOUNS:
        if (path / name).is_file():
            return path / name
    found = [run for name in NOUNS for run in path.glob(f"*/{name}")] if path.is_dir() else []
    runs = [run for run in found if run.is_file()]
    if not runs:
        raise GobrrrError(f"{path}: no {REPORT} here", "make one with: gobrrr run script.py")
    return max(runs, key=lambda run: (run.stat().st_mtime_ns, str(run)))


def beside(view: View, file: Path, report: Report) -> View:
    """With every step's time, one step's timeline and the gauges, where the recording beside its report can be read."""
    from gobrrr.ledger.steps.profiled_window import profiled_window
    from gobrrr.recording.run_folder.run import load_run
    from gobrrr.report.text.progress import Patience
    from gobrrr.report.timeline.gauge_lines import gauge_lines
    from gobrrr.report.timeline.timeline import step_times, timeline

    with Patience(f"reading the recording in {file.parent}"):
        try:
            recordings = load_run(file.parent)
        except (GobrrrError, OSError):
            return view
        own = next((recording for recording in recordings if recording.start.rank == report.rank), None)
        return view if own is None else view._replace(steps=step_times(own), timeline=timeline(profiled_window(own)),
                                                      gauges=gauge_lines(own))  # fmt: skip


def ranks_beside(file: Path, report: Report, args: argparse.Namespace) -> list[tuple[Report | None, Recording | None]]:
    """Every rank's recording that lies beside the first one's report, each with its own report; the report alone where
    there is none, which is said."""
    from gobrrr.pipeline.live_job import file_of
    from gobrrr.pipeline.runs import load
    from gobrrr.recording.run_folder.run import load_run
    from gobrrr.report.timeline.perfetto import WHOLE

    try:
        recordings = load_run(file.parent)
    except (GobrrrError, OSError):
        recordings = []
    found: list[tuple[Report | None, Recording | None]] = []
    for recording in recordings:
        own = file.parent / file_of(recording, recordings[0])
        told = redaction.redacted(load(own), args.redact) if own != file and own.is_file() else None
        found.append((report if own == file else told, recording))
    if file.name != REPORT and found:  # one rank's own report was named
        found = [(told, recording) for told, recording in found if told is report]
    if not found or not any(recording and recording.window("profile") for _, recording in found):
        streams.say(f"gobrrr: {WHOLE}")
    return found or [(report, None)]


def add_formats(parser: argparse.ArgumentParser, kind: str = "") -> None:
    """--format and -o, with the forms that a kind of noun has."""
    parser.add_argument("--format", type=formats.named, choices=formats.names(kind), help="default: by -o, or text")
    suffixes = " ".join(form.suffixes[0] for form in formats.of_kind(kind) if form.suffixes)
    parser.add_argument("-o", "--output", metavar="FILE", help=f"write to FILE instead of standard output: {suffixes}")


def format_of(args: argparse.Namespace) -> str:
    """The form that was asked for, by name or by the file's suffix."""
    return args.format or formats.by_suffix(args.output or "")


def add_options(parser: argparse.ArgumentParser, tables: bool = False) -> None:
    """Add the options for how much of a report is shown as text; `tables`: or one table of all its ops."""
    parser.add_argument("-v", "--verbose", action="store_true", help="the whole report, not its first 30 lines")
    ten = "the ten most expensive ops, not three"
    if not tables:
        parser.add_argument("--ops", action="store_true", help=ten)
        return
    parser.add_argument(
        "--ops", nargs="?", type=_rows, const=NO_NUMBER, default=0, metavar="N", help=f"{ten}; N: a table of so many",
    )  # fmt: skip
    parser.add_argument("--by", choices=WAYS, help="a table of all ops instead, summed by op, shape, line or module")
    parser.add_argument(
        "--sort", choices=tuple(SORTS), help="what that table is sorted by (self; where a device works, device)"
    )


def _rows(word: str) -> int:
    """The number after `--ops`; what main() writes where a file follows has none."""
    return options.at_least_one(word) if word else NO_NUMBER


def tell(report: Report, view: View, args: argparse.Namespace) -> None:
    """Into the file of -o, or to stdout: text as it suits the terminal, other forms as they are."""
    form = format_of(args)
    if form == "text" and (args.by or args.sort or args.ops > 0):  # one table of ops, and not the report
        from gobrrr.report.text import ops

        num = args.ops if args.ops > 0 else TEN
        shown = ops.show(report, None if args.output else sys.stdout, args.by or "op", args.sort, num)
        put(shown.encode("utf-8", "replace"), args.output)
    elif form == "text" and not args.output:
        from gobrrr.report.text import report as text

        text.show(report, sys.stdout, verbose=args.verbose, ops=bool(args.ops), mask=view.mask)
    elif formats.draws(form):
        put(formats.pieces(report, form, view, args.output or ""), args.output)
    else:
        put(formats.render(report, form, with_edits(view, report) if form == "json" else view), args.output)


def show(noun: Any, form: str, output: str | None, view: View) -> None:
    """Any other noun: text as it suits the terminal, else a form into the file of -o or to stdout."""
    if form == "text" and not output:
        formats.show(noun, sys.stdout, view)
    else:
        put(formats.render(noun, form, view), output)


def with_edits(view: View, report: Report) -> View:
    """The view with the edits that stand for the report's remedies, of a program that is here; without those that would
    show a key or a password, as a diff cannot be masked."""
    from gobrrr.remedies.edits.catalogue import offers

    found: dict[str, list[dict[str, Any]]] = {}
    for each in offers(report, report.command, Path(view.root), live=True) if report.command else ():
        hidden = any(view.mask(masked_text(line, code=True)) != line for line in each.diff.splitlines())
        if not hidden and all(name.endswith(".py") for name in each.files):
            told = {"remedy": each.name, "safety": each.safety, "diff": each.diff, "env": dict(each.env)}
            found.setdefault(each.code, []).append(told)
    return view._replace(edits=found if report.command else None)


def put(content: bytes | Iterable[bytes], output: str | None) -> None:
    """Into the file of -o, whole or not at all, or to stdout; `content` may come in pieces."""
    if not output:
        sys.stdout.buffer.writelines([content] if isinstance(content, bytes) else content)
        return
    try:
        files.put(Path(output), content)
    except OSError as error:
        why = f"cannot write {Path(output)}: {error.strerror}"
        raise GobrrrError(why, "name a file in a folder that exists") from None


def put_json(found: object, args: argparse.Namespace) -> None:
    """Write what was found as JSON to stdout, where --json asks for it."""
    if args.json:
        from gobrrr.report.forms.json import as_json

        put(as_json(found), None)


RECORDED = "rank*"
"""Pattern of the files that ranks leave in a run's folder: rank0.journal, rank0.window1-4.trace.json."""


def check_target(output: str | None, inputs: Iterable[str]) -> None:
    """Raises GobrrrError where writing would overwrite what is to be read."""
    every = [Path(word) for word in inputs]
    folders = [path.parent if path.name in NOUNS else path for path in every]
    recorded = [file for folder in folders for file in folder.glob(RECORDED)]
    read = [file for file in (*every, *recorded) if file.is_file()]
    if output and Path(output).exists() and any(file.samefile(output) for file in read):
        raise GobrrrError(f"{output} is read itself, and would be overwritten", "name another file after -o")


def receipt_in(file: Path) -> Receipt | None:
    """Read a file that is no report as the receipt of a tuning. None where the file does not say that it is one.
    Raises GobrrrError for a receipt that is not whole."""
    from gobrrr.trial.receipt import receipt

    return receipt.read(file) if _schema(file).startswith("gobrrr.receipt/") else None


def _sweep_in(file: Path) -> Swept | None:
    from gobrrr.trial.receipt.receipt import decoded
    from gobrrr.trial.receipt.swept import Swept

    own = _schema(file).startswith("gobrrr.sweep/")
    return decoded(file, Swept, "sweep", f"name a {SWEEP} that gobrrr sweep wrote") if own else None


def job_in(file: Path) -> Job | None:
    """Read a file as the job of several ranks. None where it does not say that it is one."""
    from gobrrr.ledger.job.ranks import Job
    from gobrrr.trial.receipt.receipt import decoded

    own = _schema(file).startswith("gobrrr.job/")
    return decoded(file, Job, "job", f"name a {JOB} that gobrrr run wrote") if own else None


def _schema(file: Path) -> str:
    """Return the schema that the file names; empty where it cannot be read."""
    import msgspec

    from gobrrr.trial.receipt.receipt import MAX_BYTES

    try:
        fields = msgspec.json.decode(files.read(file, MAX_BYTES), type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields["schema"], type=str)
    except (OSError, KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
