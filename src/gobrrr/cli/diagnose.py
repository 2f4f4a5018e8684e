"""`gobrrr diagnose`: what a trace says that torch.profiler wrote elsewhere; many traces are the ranks of one job."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import price, redaction
from gobrrr.cli.report import add_formats, add_options, format_of, put, tell
from gobrrr.errors import GobrrrError
from gobrrr.report import formats
from gobrrr.report.formats import View

if TYPE_CHECKING:  # the engine is imported where it is used: `gobrrr --help` must not wait for it
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from gobrrr.ledger.ranks import Job, RankSummary
    from gobrrr.machine.model import Machine
    from gobrrr.recording.limits import Limits
    from gobrrr.recording.run import Recording
    from gobrrr.recording.sources import Source
    from gobrrr.report.model import Report

CHUNK = 4


class DiagnoseCommand:
    """Reads files; needs no torch and no GPU."""

    name = "diagnose"
    help = "say what makes a program slow from the traces of torch.profiler"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Arguments of the verb."""
        from gobrrr.recording.limits import Limits, flag

        parser.add_argument("traces", nargs="+", metavar="TRACE", help="files, folders, patterns or .tar archives")
        add_formats(parser)
        parser.add_argument("--json", metavar="FILE", help="write the report as JSON too")
        parser.add_argument("--machine", metavar="FILE", help="ceilings of the traced machine (gobrrr machine --json)")
        parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes for many traces (all cores)")
        parser.add_argument("--portability", action="store_true", help="also what would matter on another device")
        add_options(parser)
        price.add_option(parser)
        redaction.add_option(parser)
        for field in fields(Limits):
            parser.add_argument(flag(field.name), type=int, default=field.default, metavar="N", help=argparse.SUPPRESS)

    def run(self, args: argparse.Namespace) -> int:
        """Read, account, judge, tell; raises GobrrrError for whatever people can mend."""
        from gobrrr.recording.limits import Limits
        from gobrrr.recording.sources import find
        from gobrrr.report.money import priced

        _check_form(args, len(args.traces))
        per_hour = price.asked(args)
        limits = Limits(**{field.name: getattr(args, f"max_{field.name}") for field in fields(Limits)})
        machine = _machine(args.machine)
        sources = find(args.traces, limits)
        if len(sources) == 1:
            report, _, recording = _judged(sources[0], machine, limits, args.portability)
            _tell(redaction.redacted(priced(report, per_hour), args.redact), recording, args)
            return 0
        _check_form(args, len(sources))
        job = _job(sources, machine, limits, args.jobs)
        if all(each.error for each in job.ranks):
            raise GobrrrError(job.ranks[0].error, "none of these files could be read")
        _tell_job(redaction.redacted(job, args.redact), args)
        return 0


def diagnose(
    traces: Sequence[str], *, executor: Executor | None = None, machine: str | None = None, limits: Limits | None = None
) -> Report | Job:
    """What `gobrrr diagnose` finds, for programs: the report of one trace, or the job of several ranks.

    `traces` are files, folders, patterns and .tar archives. Ranks are reduced one at a time here, or by the `map` of
    `executor`: anything with the interface of concurrent.futures, such as `distributed.Client(...).get_executor()`, on
    whose machines the files must be readable under the same names. `machine` is a file of ceilings. Raises GobrrrError.
    """
    from gobrrr.ledger import ranks
    from gobrrr.ledger.calls import calls_each
    from gobrrr.recording.limits import DEFAULT
    from gobrrr.recording.sources import find

    limits, there = limits or DEFAULT, _machine(machine)
    sources = find(list(traces), limits)
    if len(sources) == 1:
        return diagnosed(sources[0], there, limits)
    reduce = partial(reduced, machine=there, limits=limits, most=calls_each(len(sources)))
    return ranks.reduced(reduce, sources, executor.map if executor else map)


def diagnosed(source: Source, machine: Machine, limits: Limits, portability: bool = False) -> Report:
    """The report of one trace. Raises TraceError."""
    return _judged(source, machine, limits, portability)[0]


def reduced(source: Source, machine: Machine, limits: Limits, most: int = 0) -> RankSummary:
    """One rank's figures, and `most` of its collectives; a file that cannot be read is a rank with an error."""
    from msgspec.structs import replace

    from gobrrr.ledger.ranks import RankSummary

    try:
        report, summary, _ = _judged(source, machine, limits, portability=False, most=most)
    except GobrrrError as error:
        return RankSummary(source=str(source), error=error.message)
    codes = tuple(finding.code for finding in report.findings)
    return replace(summary, verdict=report.verdict.sentence, bound=report.verdict.bound, codes=codes)


def _judged(
    source: Source, machine: Machine, limits: Limits, portability: bool, most: int = 0
) -> tuple[Report, RankSummary, Recording]:
    """`most`: collectives that are told call by call, for the other ranks."""
    from gobrrr.cli.diagnosis import judged
    from gobrrr.ledger.calls import calls
    from gobrrr.ledger.ranks import summary
    from gobrrr.recording.offline import of_trace
    from gobrrr.recording.sources import rank_of, read

    trace = read(source, limits)
    rank, world = rank_of(source, trace), trace.properties.world_size
    recording = of_trace(trace)
    ledger, report = judged(recording, machine, portability=portability, rank=rank, world_size=world)
    told = calls(recording, trace, most) if most else None
    return report, summary(ledger, str(source), rank, world, told), recording


def _machine(file: str | None) -> Machine:
    import msgspec

    from gobrrr.machine import files
    from gobrrr.machine.store import MAX_BYTES, decode
    from gobrrr.machine.unknown import UNKNOWN

    if file is None:
        return UNKNOWN
    try:
        return decode(files.read(Path(file), MAX_BYTES))
    except OSError as error:
        raise GobrrrError(
            f"{file}: {error.strerror}", "make one there with: gobrrr machine --json > machine.json"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GobrrrError(f"{file} holds no ceilings: {error}", "make one with: gobrrr machine --json") from None


def _job(sources: list[Source], machine: Machine, limits: Limits, jobs: int) -> Job:
    """Ranks are reduced one at a time, beside each other: memory does not grow with their number."""
    from concurrent.futures import ProcessPoolExecutor

    from gobrrr.ledger import ranks
    from gobrrr.ledger.calls import calls_each

    reduce = partial(reduced, machine=machine, limits=limits, most=calls_each(len(sources)))
    count = min(jobs or os.cpu_count() or 1, len(sources))
    if count <= 1:
        return ranks.reduced(reduce, sources)
    with ProcessPoolExecutor(count) as pool:
        chunk = max(1, min(CHUNK, len(sources) // count))
        return ranks.reduced(reduce, sources, partial(pool.map, chunksize=chunk))


def _tell(report: Report, recording: Recording, args: argparse.Namespace) -> None:
    from gobrrr.ledger.timeline import timeline
    from gobrrr.report.json import to_json

    if args.json:
        _write(args.json, to_json(report))
    drawn = timeline(recording) if format_of(args) == "html" else None
    tell(report, View(str(Path.cwd()), mask=redaction.masker(args.redact), timeline=drawn), args)


def _tell_job(job: Job, args: argparse.Namespace) -> None:
    from gobrrr.report.job import show_job

    if args.json:
        _write(args.json, formats.render(job, "json", View()))
    form = format_of(args)
    if form == "text" and not args.output:
        show_job(job, sys.stdout)
    else:
        put(formats.render(job, form, View()), args.output)


def _check_form(args: argparse.Namespace, num_traces: int) -> None:
    """Raises GobrrrError for a form that a job of several ranks does not have, before anything is read."""
    if num_traces > 1:
        formats.check(format_of(args), "job")


def _write(file: str, content: bytes) -> None:
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise GobrrrError(f"{file}: {error.strerror}", "name another file") from None


command = DiagnoseCommand()
