"""The report of all ranks of a run: their ledgers, the steps that all of them made, and how each ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gobrrr.ledger.job import ranks as jobs
from gobrrr.ledger.job.blame import MOST, THREADS, told
from gobrrr.ledger.job.calls import Calls, calls, calls_each
from gobrrr.ledger.job.culprits import AT_TIMES, Culprit
from gobrrr.ledger.job.endings import Stood, first_to_end
from gobrrr.ledger.job.host_calls import host_calls, in_common
from gobrrr.ledger.job.own_steps import own_steps, stood, threads_ns, waits_in
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.probe.system_probe import usable_cores
from gobrrr.pipeline.file_names import REPORT
from gobrrr.recording.model.phases import BACKWARD, FORWARD, OPTIMIZER, OTHER, WAIT
from gobrrr.recording.run_folder.failure_file import deaths, endings
from gobrrr.recording.run_folder.run import Recording
from gobrrr.rules.verdict.place import spot
from gobrrr.rules.verdict.report import Report
from gobrrr.system.processes import began

CONTENTION, GENERAL = "BRR905", "BRR701"
COMMUNICATION = (GENERAL, "BRR702", "BRR703", "BRR704", "BRR705")


def job_of(ranks: Sequence[Profiled], found: Sequence[tuple[Ledger, Report]], code: int) -> Job | None:
    """The ranks' job, of their ledgers and reports, of a program that ended with `code`; None where they are no ranks
    of one job: processes that a program started, each for itself."""
    starts = [rank.recording.start for rank in ranks]
    numbers = {start.rank for start in starts}
    if len(ranks) < 2 or len(numbers) < len(ranks) or any((start.world_size or 0) < 2 for start in starts):
        return None
    summaries = summarised(ranks, found, calls_each(len(ranks)))
    return told_together(summaries, [report for _, report in found], _endings(ranks) if code else ("", ()))


def summarised(
    ranks: Sequence[Profiled], found: Sequence[tuple[Ledger, Report]], most: int
) -> list[RankSummary]:  # fmt: skip
    """Return the figures of the ranks of one machine, and `most` collectives of each."""
    waits = phases_with_waits([rank.recording for rank in ranks])
    read = []
    for rank, (ledger, report) in zip(ranks, found, strict=True):
        recording = rank.recording
        source = file_of(recording, ranks[0].recording)
        sent, num = host_calls(recording, report.world_size or 0, most)
        if not sent.groups and recording.trace is not None:
            sent = calls(recording, recording.trace, most)
        one = replace(
            jobs.summary(ledger, source, report.rank, report.world_size, sent), threads_ns=threads_ns(recording)
        )
        if num:
            one = replace(one, communication_ns=sent.ns / num)
        codes = tuple(finding.code for finding in report.findings)
        read.append(replace(one, steps=own_steps(recording, waits), verdict=report.verdict.sentence,
                                            bound=report.verdict.bound, codes=codes))  # fmt: skip
    return read


def told_together(
    read: Sequence[RankSummary], reports: Sequence[Report], ended: tuple[str, tuple[str, ...]] = ("", ())
) -> Job:
    """Return the job of ranks that were summarised. `ended`: as of endings.first_to_end()."""
    if all(one.device == "" for one in read):
        common = in_common([one.calls or Calls() for one in read])
        read = [replace(one, calls=kept) for one, kept in zip(read, common, strict=True)]
    job = jobs.together(read)
    if not any(one.step_ns for one in read):
        job = replace(job, verdict="Too few steps were made to say who waits for whom.", bound="unreliable")
    job = replace(job, blames=tuple(_with_line(one, read, reports) for one in job.blames))
    if job.shared is not None and job.blames and job.bound in ("straggler", "uneven"):
        job = replace(job, verdict=told(job.blames[0], job.shared.step_ns))
    causes = _causes(reports)
    if job.bound == "communication" and causes:
        job = replace(job, verdict=f"{job.verdict.partition(';')[0].rstrip('.')}: {causes[0][0]}.")
    return replace(job, live=True, causes=causes, doubts=_doubts(reports), ended=ended[0], endings=ended[1])


def phases_with_waits(ranks: Sequence[Recording]) -> set[str]:
    """Return the phases of these ranks in which one may wait for others: where they have more threads than there are
    cores, in all that compute."""
    crowded = sum(rank.start.threads for rank in ranks) > usable_cores()
    return {FORWARD, BACKWARD, OPTIMIZER} if crowded else {each for rank in ranks for each in waits_in(rank)}


def _with_line(one: Culprit, read: Sequence[RankSummary], reports: Sequence[Report]) -> Culprit:
    """Return a culprit with a line, where none was seen: of a wait for the loader the finding's that explains it, of a
    model's work its call, of one rank now and then that of a finding which it has and no other."""
    if one.where is not None or one.why.startswith(THREADS):
        return one
    late = [report for rank, report in zip(read, reports, strict=True) if rank.rank in one.ranks]
    if one.phase == WAIT:
        told = [f for report in late for f in report.findings if f.code[:4] == "BRR4" and f.where]
        first = max(told, key=lambda finding: finding.saving.expected_ns, default=None)
        return replace(one, where=first.where[0]) if first is not None else one
    if one.phase in (FORWARD, BACKWARD) and one.when != AT_TIMES:
        return replace(one, where=read[0].model)
    if one.phase in (FORWARD, OTHER):
        elsewhere = {where for rank in read if rank.rank not in one.ranks for where in rank.between}
        alone = [where for rank in read if rank.rank in one.ranks for where in rank.between if where not in elsewhere]
        if alone:
            return replace(one, where=alone[0])
    least, others = MOST * one.surplus_ns * one.share_of_steps, {
        (f.code, f.where[0].place) for report in reports if report not in late for f in report.findings if f.where
    }  # fmt: skip
    own = [f for report in late for f in report.findings if f.where and f.code[:4] not in ("BRR7", "BRR9")]
    enough = (
        f.where[0]
        for f in own
        if max(f.holds_ns, f.saving.expected_ns) >= least and (f.code, f.where[0].place) not in others
    )
    return replace(one, where=next(enough, None))


def _causes(reports: Sequence[Report]) -> tuple[tuple[str, float], ...]:
    """Return (finding about communication with its line, ns per step that a fix would save), the dearest first; what
    says no more than that ranks wait comes behind the others."""
    dearest: dict[str, float] = {}
    for finding in (f for report in reports for f in report.findings if f.code in COMMUNICATION):
        at = f" at {spot(finding.where[0])}" if finding.where else ""
        name = f"{finding.name.replace('-', ' ')} ({finding.code}){at}"
        dearest[name] = max(dearest.get(name, 0.0), finding.saving.expected_ns)
    return tuple(sorted(dearest.items(), key=lambda each: (GENERAL in each[0], -each[1])))


def _doubts(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return what the ranks' reports say of cores that others took: then waiting for cores is in all figures."""
    said = [(report.rank, f.message) for report in reports for f in report.findings if f.code == CONTENTION]
    more = f", {len(said) - 1} more likewise" if len(said) > 1 else ""
    return tuple(f"rank {rank}: {message} ({CONTENTION}){more}" for rank, message in said[:1])


def _endings(ranks: Sequence[Profiled]) -> tuple[str, tuple[str, ...]]:
    """As of endings.first_to_end(), of a program that failed."""
    known, gone = endings(ranks[0].recording.folder), deaths(ranks[0].recording.folder)
    found = []
    for recording in (rank.recording for rank in ranks):
        start, steps = recording.start, stood(recording)
        lives = start.began is not None and began(start.pid) == start.began
        found.append(Stood(start.rank or 0, *steps, known.get(start.pid), lives, gone.get(start.pid, 0)))
    return first_to_end(found)


def file_of(recording: Recording, first: Recording) -> str:
    """The name of a rank's report in the run's folder."""
    return REPORT if recording is first else f"report.rank{recording.start.rank}-{recording.start.pid}.json"
