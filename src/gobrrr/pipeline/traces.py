"""From traces that others wrote to a report, or to the job of several ranks."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.errors import GobrrrError

if TYPE_CHECKING:  # each is imported where it is used: `import gobrrr` must stay cheap
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from gobrrr.ledger.job.ranks import Job, RankSummary
    from gobrrr.ledger.steps.profiled_window import Profiled
    from gobrrr.machine.model.machine import Machine
    from gobrrr.recording.model.trace import Trace
    from gobrrr.recording.trace_files.limits import Limits
    from gobrrr.recording.trace_files.offline import Part
    from gobrrr.recording.trace_files.sources import Source
    from gobrrr.rules.verdict.report import Report

EPOCH = 946_684_800 * 10**9
"""The year 2000, in ns."""
CHUNK = 4
"""Traces that a process takes at a time."""


def diagnose(
    traces: Sequence[str], *, executor: Executor | None = None, machine: str | None = None, limits: Limits | None = None
) -> Report | Job:
    """Diagnose as `gobrrr diagnose` does, for programs: the report of one trace, or the job of several ranks.

    `traces` are files, folders, patterns and .tar archives. Ranks are reduced one at a time here, or by the `map` of
    `executor`: anything with the interface of concurrent.futures, such as `distributed.Client(...).get_executor()`, on
    whose machines the files must be readable under the same names. `machine` is a file of ceilings. Several folders of
    `gobrrr run`, one of each machine of a job, are read so too. Raises GobrrrError.
    """
    if folders := run_folders(traces):
        from gobrrr.pipeline.runs import job_of_folders

        return job_of_folders(folders, executor)
    from gobrrr.ledger.job import ranks
    from gobrrr.ledger.job.calls import calls_each
    from gobrrr.recording.trace_files.limits import DEFAULT
    from gobrrr.recording.trace_files.sources import find

    limits, there = limits or DEFAULT, machine_in(machine)
    sources = find(list(traces), limits)
    if len(sources) == 1:
        return diagnosed(sources[0], there, limits)
    reduce = partial(reduced, machine=there, limits=limits, most=calls_each(len(sources)))
    return ranks.together(tuple((executor.map if executor else map)(reduce, sources)))


def run_folders(traces: Sequence[str]) -> list[Path]:
    """Return what is named, where it is several folders that `gobrrr run` has written; else nothing."""
    found = [Path(each) for each in traces]
    return found if len(found) > 1 and all(any(each.glob("rank*.journal")) for each in found) else []


def diagnosed(source: Source, machine: Machine, limits: Limits, portability: bool = False) -> Report:
    """The report of one trace. Raises TraceError."""
    return judged_trace(source, machine, limits, portability)[0]


def reduced(
    source: Source, machine: Machine, limits: Limits, most: int = 0, part: Part | None = None
) -> RankSummary:  # fmt: skip
    """One rank's figures, and `most` of its collectives; a file that cannot be read is a rank with an error."""
    from msgspec.structs import replace

    from gobrrr.ledger.job.ranks import RankSummary

    try:
        report, summary, _ = judged_trace(source, machine, limits, portability=False, most=most, part=part)
    except GobrrrError as error:
        return RankSummary(source=str(source), error=error.message)
    codes = tuple(finding.code for finding in report.findings)
    return replace(summary, verdict=report.verdict.sentence, bound=report.verdict.bound, codes=codes)


def judged_trace(
    source: Source, machine: Machine, limits: Limits, portability: bool, most: int = 0, part: Part | None = None
) -> tuple[Report, RankSummary, Profiled]:
    """`most`: collectives that are told call by call, for the other ranks. `part`: of the file, else all of it."""
    from gobrrr.ledger.job.calls import calls
    from gobrrr.ledger.job.ranks import summary
    from gobrrr.ledger.steps.profiled_window import Profiled
    from gobrrr.pipeline.judging import judged
    from gobrrr.recording.trace_files.offline import WHOLE, of_trace
    from gobrrr.recording.trace_files.sources import rank_of, read

    trace = read(source, limits)
    rank, world = rank_of(source, trace), trace.properties.world_size
    recording = of_trace(trace, part or WHOLE)
    profiled = Profiled(recording)
    ledger, report = judged(profiled, machine, portability=portability, rank=rank, world_size=world)
    told = calls(recording, trace, most) if most else None
    return report, summary(ledger, str(source), rank, world, told, _span(trace)), profiled


def _span(trace: Trace) -> tuple[int, int] | None:
    """First and last moment, where those are of this century: older files count from the start of the computer."""
    starts = [table.start for table in (trace.ops, trace.kernels) if len(table.start)]
    first, last = (min(int(s[0]) for s in starts), max(int(s[-1]) for s in starts)) if starts else (0, 0)
    return (first, last) if first > EPOCH else None


def machine_in(file: str | None) -> Machine:
    import msgspec

    from gobrrr.machine.measure.store import MAX_BYTES, decode
    from gobrrr.machine.model.machine import UNKNOWN
    from gobrrr.system import files

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


def job(sources: list[Source], machine: Machine, limits: Limits, jobs: int, part: Part | None = None) -> Job:
    """Ranks are reduced one at a time, beside each other: memory does not grow with their number."""
    from concurrent.futures import ProcessPoolExecutor

    from gobrrr.ledger.job import ranks
    from gobrrr.ledger.job.calls import calls_each
    from gobrrr.report.text.progress import counted

    reduce = partial(reduced, machine=machine, limits=limits, most=calls_each(len(sources)), part=part)
    count = min(jobs or os.cpu_count() or 1, len(sources))
    told = partial(counted, num=len(sources), doing=f"reading the traces of {len(sources)} ranks")
    if count <= 1:
        return ranks.together(tuple(told(map(reduce, sources))))
    with ProcessPoolExecutor(count) as pool:
        chunk = max(1, min(CHUNK, len(sources) // count))
        return ranks.together(tuple(told(pool.map(reduce, sources, chunksize=chunk))))
