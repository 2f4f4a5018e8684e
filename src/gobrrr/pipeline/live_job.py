"""The report of all ranks of a run: their ledgers, the steps that all of them made, and how each ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gobrrr.ledger.job import ranks as jobs
from gobrrr.ledger.job.calls import Calls, calls, calls_each
from gobrrr.ledger.job.endings import Stood, first_to_end
from gobrrr.ledger.job.host_calls import host_calls, in_common
from gobrrr.ledger.job.own_steps import own_steps, stood
from gobrrr.ledger.job.ranks import Job
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.pipeline.file_names import REPORT
from gobrrr.recording.run_folder.failure_file import endings
from gobrrr.recording.run_folder.run import Recording
from gobrrr.rules.verdict.report import Report


def job_of(ranks: Sequence[Profiled], found: Sequence[tuple[Ledger, Report]], code: int) -> Job | None:
    """The ranks' job, of their ledgers and reports, of a program that ended with `code`; None where they are no ranks
    of one job: processes that a program started, each for itself."""
    starts = [rank.recording.start for rank in ranks]
    numbers = {start.rank for start in starts}
    if len(ranks) < 2 or len(numbers) < len(ranks) or any((start.world_size or 0) < 2 for start in starts):
        return None
    read = []
    for rank, (ledger, report) in zip(ranks, found, strict=True):
        recording = rank.recording
        most, source = calls_each(len(ranks)), file_of(recording, ranks[0].recording)
        told, num = host_calls(recording, report.world_size or 0, most)
        if not told.groups and recording.trace is not None:
            told = calls(recording, recording.trace, most)
        one = jobs.summary(ledger, source, report.rank, report.world_size, told)
        if num:
            one = replace(one, communication_ns=told.ns / num)
        codes = tuple(finding.code for finding in report.findings)
        read.append(replace(one, steps=own_steps(recording), verdict=report.verdict.sentence,
                                            bound=report.verdict.bound, codes=codes))  # fmt: skip
    ended = _endings(ranks) if code else ("", ())
    if all(one.device == "" for one in read):
        common = in_common([one.calls or Calls() for one in read])
        read = [replace(one, calls=told) for one, told in zip(read, common, strict=True)]
    return replace(jobs.together(read), ended=ended[0], endings=ended[1])


def _endings(ranks: Sequence[Profiled]) -> tuple[str, tuple[str, ...]]:
    """As of endings.first_to_end(), of a program that failed."""
    known = endings(ranks[0].recording.folder)
    starts = [rank.recording.start for rank in ranks]
    return first_to_end(
        [
            Stood(start.rank or 0, *stood(rank.recording), known.get(start.pid))
            for start, rank in zip(starts, ranks, strict=True)
        ]
    )


def file_of(recording: Recording, first: Recording) -> str:
    """The name of a rank's report in the run's folder."""
    return REPORT if recording is first else f"report.rank{recording.start.rank}-{recording.start.pid}.json"
