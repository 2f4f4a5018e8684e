"""`gobrrr diagnose`: what a trace says that torch.profiler wrote elsewhere; many traces are the ranks of one job."""

from __future__ import annotations

import argparse
import gc
import math
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli import options, streams
from gobrrr.cli.reading.report import add_formats, add_options, check_target, format_of, put, show, tell
from gobrrr.errors import GobrrrError
from gobrrr.pipeline import redaction
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from gobrrr.system.escape import plain

if TYPE_CHECKING:  # the engine is imported where it is used: `gobrrr --help` must not wait for it
    from collections.abc import Iterator

    from gobrrr.ledger.job.ranks import Job
    from gobrrr.ledger.steps.profiled_window import Profiled
    from gobrrr.machine.model.machine import Machine
    from gobrrr.recording.run_folder.run import Recording
    from gobrrr.recording.trace_files.limits import Limits
    from gobrrr.recording.trace_files.offline import Part
    from gobrrr.recording.trace_files.sources import Source
    from gobrrr.rules.verdict.report import Report


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    from gobrrr.recording.trace_files.limits import Limits, flag

    parser.add_argument("traces", nargs="+", metavar="TRACE", help="files, folders, patterns or .tar archives")
    add_formats(parser)
    parser.add_argument(
        "--json", nargs="?", const="", metavar="FILE",
        help="write the report as JSON too; as the last word: to stdout",
    )  # fmt: skip
    parser.add_argument("--machine", metavar="FILE", help="ceilings of the traced machine (gobrrr machine --json)")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes for many traces (all cores)")
    parser.add_argument("--steps", type=_numbers, metavar="A-B", help="only steps of these numbers")
    parser.add_argument("--from", dest="since", type=float, default=0.0, metavar="SECONDS",
                        help="only what begins so long after the file's first event")  # fmt: skip
    parser.add_argument("--until", type=float, default=math.inf, metavar="SECONDS", help="and ends by then")
    parser.add_argument("--portability", action="store_true", help="also what would matter on another device")
    add_options(parser, tables=True)
    options.add_price(parser)
    options.add_redact(parser)
    for field in fields(Limits):
        parser.add_argument(flag(field.name), type=int, default=field.default, metavar="N", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Read, account, judge, tell; raises GobrrrError for whatever people can mend."""
    from gobrrr.pipeline import traces
    from gobrrr.recording.trace_files.limits import Limits
    from gobrrr.recording.trace_files.offline import Part
    from gobrrr.recording.trace_files.sources import find
    from gobrrr.report.text.progress import Patience
    from gobrrr.report.told.money import priced

    gc.set_threshold(100_000, 50, 100)  # a million events make many objects and hardly a cycle
    args.format = "json" if args.json == "" else args.format
    _check_form(args, len(args.traces))
    per_hour = options.price(args)
    for output in (args.output, args.json):
        check_target(output, args.traces)
    limits = Limits(**{field.name: getattr(args, f"max_{field.name}") for field in fields(Limits)})
    machine = traces.machine_in(args.machine)
    if folders := traces.run_folders(args.traces):
        if args.steps or args.machine or args.portability or args.since or args.until < math.inf:
            raise GobrrrError("--steps, --from, --until, --machine and --portability are for traces alone",
                              "name the run folders without them")  # fmt: skip
        from gobrrr.pipeline.runs import job_of_folders

        with ProcessPoolExecutor(min(args.jobs or os.cpu_count() or 1, len(folders))) as pool:
            return _tell_job(job_of_folders(folders, pool), args)
    sources = find(args.traces, limits)
    part = Part(args.steps, (args.since, args.until)) if args.steps else Part(seconds=(args.since, args.until))
    if len(sources) == 1:
        with Patience(f"reading {sources[0]}"):
            report, _, profiled = traces.judged_trace(sources[0], machine, limits, args.portability, part=part)
        _tell(redaction.redacted(priced(report, per_hour), args.redact), profiled, args)
        return 0
    _check_form(args, len(sources))
    if formats.draws(form := format_of(args)):
        drawn = View(mask=redaction.masker(args.redact), ranks=_ranks(sources, machine, limits, args, part))
        put(formats.pieces(None, form, drawn, args.output or ""), args.output)
        return 0
    return _tell_job(traces.job(sources, machine, limits, args.jobs, part), args)


def _tell_job(job: Job, args: argparse.Namespace) -> int:
    if all(each.error for each in job.ranks):
        raise GobrrrError(job.ranks[0].error, "none of these files could be read")
    job = redaction.redacted(job, args.redact)
    if args.json:
        put(formats.render(job, "json", View()), args.json)
    show(job, format_of(args), args.output, View())
    return 0


def _numbers(text: str) -> tuple[int, int]:
    """'5-12', or '5' for one. Raises ArgumentTypeError."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no pair of numbers such as 5-12")
    return int(first), int(last or first)


def _tell(report: Report, profiled: Profiled, args: argparse.Namespace) -> None:
    from gobrrr.report.forms.json import to_json
    from gobrrr.report.timeline.timeline import timeline

    if args.json:
        put(to_json(report), args.json)
    form = format_of(args)
    view = View(str(Path.cwd()), mask=redaction.masker(args.redact),
                timeline=timeline(profiled.window) if form == "html" else None,
                ranks=[(report, profiled.recording)] if formats.draws(form) else ())  # fmt: skip
    tell(report, view, args)


def _ranks(
    sources: list[Source], machine: Machine, limits: Limits, args: argparse.Namespace, part: Part
) -> Iterator[tuple[Report, Recording]]:
    """Each trace with what is found in it, one after another; those that cannot be read are named, and left out.
    Raises GobrrrError where none can be."""
    from gobrrr.pipeline.traces import judged_trace

    failed = []
    for source in sources:
        try:
            report, _, profiled = judged_trace(source, machine, limits, args.portability, part=part)
        except GobrrrError as error:
            failed.append(error)
            streams.say(f"gobrrr: left out: {plain(error.message)}")
            continue
        yield redaction.redacted(report, args.redact), profiled.recording
    if len(failed) == len(sources):
        raise GobrrrError(failed[0].message, "none of these files could be read")


def _check_form(args: argparse.Namespace, num_traces: int) -> None:
    """Raises GobrrrError for a form that a job of several ranks does not have, before anything is read."""
    if num_traces > 1:
        formats.check(format_of(args), "job")
