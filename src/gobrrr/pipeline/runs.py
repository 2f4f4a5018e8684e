"""Make the report of a run from its folder: read the recording, build the ledger, find causes; one for each rank."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import replace

from gobrrr import __version__
from gobrrr.errors import GobrrrError
from gobrrr.ledger.job.calls import calls_each
from gobrrr.ledger.job.forecast import Forecast, Network
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.probe.fingerprint import of_hardware
from gobrrr.machine.probe.system_probe import probe
from gobrrr.pipeline import redaction
from gobrrr.pipeline.ceilings import interpreter, proven, say
from gobrrr.pipeline.file_names import JOB, JOB_PAGE, REPORT
from gobrrr.pipeline.judging import judged
from gobrrr.pipeline.live_job import file_of, job_of, phases_with_waits, summarised, told_together
from gobrrr.pipeline.out_of_memory import died_of
from gobrrr.recording.model.setup import Setup
from gobrrr.rehearsal.perform import SECONDS
from gobrrr.report.told.money import priced
from gobrrr.rules.memory.out_of_memory import Diagnosis
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.report import Report
from gobrrr.system import files

MOST_RANKS = 8
"""Other ranks of which each is judged by itself before a tuning: a second or two each."""
MOST_NS = 1e15
"""Beyond any time, size or number of calls of a step: eleven days."""
ROOM = "make room, or name a folder elsewhere with -o DIR"


def explain(
    folder: Path, command: list[str], code: int, *, shown: dict[str, Any] | None = None, baseline: bool = False,
    **how: Any,
) -> Report:  # fmt: skip
    """Write report.json and report.html (and report.rank<k>.*) into the folder, and the text to stderr; return the
    first rank's report. `shown`: verbose, ops as of report.text.report.show(); `baseline`: measure one rank of a job by
    itself too; `how`: as of report_of()."""
    from gobrrr.recording.run_folder.run import load_run
    from gobrrr.report.forms import formats
    from gobrrr.report.forms.json import to_json
    from gobrrr.report.text.progress import Patience

    if not any(folder.glob("rank*.journal")):
        raise why_empty(folder, code)
    with Patience("judging what was recorded"):
        ranks = [Profiled(recording) for recording in load_run(folder)]
        first = how.pop("rehearsal", True)  # of many ranks one: they would take each other's cores
        found = [_diagnose(r, folder, command, code, rehearsal=first and r is ranks[0], **how) for r in ranks]
        reports, job = [report for _, report in found], job_of(ranks, found, code)
    if baseline and job is not None and not code:
        job = _with_baseline(job, command, folder, ranks[0].recording.start.threads)
    written = [folder / file_of(rank.recording, ranks[0].recording) for rank in ranks]
    for file, report in zip(written, reports, strict=True):
        _write(file, to_json(report), files.write)
    if not reports[0].step.count:
        raise _cut(folder, code) or _no_whole_step(folder, code)
    mask = redaction.masker(how.get("patterns", ()))
    if job is not None:
        _write(folder / JOB, formats.render(job, "json", formats.PLAIN), files.write)
    _show(reports, job, {**(shown or {}), "mask": mask})
    with Patience("drawing the page"):
        for file, rank, report in zip(written, ranks, reports, strict=True):
            _write(file.with_suffix(".html"), page_of(report, mask, rank), files.write)
        if job is not None:
            _write(
                folder / JOB_PAGE, formats.render(job, "html", formats.View(str(Path.cwd()), mask=mask)), files.write
            )
    return reports[0]


def _with_baseline(job: Job, command: list[str], folder: Path, threads: int) -> Job:
    """Return the job with what one rank takes by itself, and what its all-reduces take where nobody computes."""
    from gobrrr.machine.measure.collectives import all_reduces
    from gobrrr.pipeline.first_run import step_alone_ns

    say("running one rank by itself, for the baseline")
    sizes = [int(one.size) for group in job.groups for one in group.sizes if one.kind == "all-reduce" and one.size]
    by_gloo = not any(rank.device for rank in job.ranks)
    known = all_reduces(sizes, len(job.ranks), interpreter(command)) if by_gloo else {}
    groups = tuple(
        replace(group, sizes=tuple(replace(one, alone_ns=known.get(int(one.size))) for one in group.sizes))
        for group in job.groups
    )
    try:
        alone = step_alone_ns(command, Path.cwd(), folder / "alone", threads)
        return replace(job, groups=groups, alone_ns=alone)
    except GobrrrError as error:
        say(str(error))
        return replace(job, groups=groups)


def job_of_folders(folders: Sequence[Path], executor: Executor | None = None) -> Job:
    """Return the job of ranks whose machines have each left a folder. Each is reduced to a few figures by the `map` of
    `executor` (anything of concurrent.futures; of dask: Client.get_executor()), or here, one after another.

    Raises GobrrrError where a folder holds no recording.
    """
    found = list((executor.map if executor else map)(partial(_reduced, most=calls_each(8 * len(folders))), folders))
    return told_together([one for ranks, _ in found for one in ranks], [one for _, each in found for one in each])


def _reduced(folder: Path, most: int) -> tuple[list[RankSummary], list[Report]]:
    """The ranks of a folder, with their reports as far as a job asks for them."""
    from gobrrr.recording.run_folder.run import load_run

    ranks = [Profiled(recording) for recording in load_run(folder)]
    found = [_diagnose(rank, folder, [], 0, rehearsal=False) for rank in ranks]
    read = [replace(one, source=f"{folder.name}/{one.source}") for one in summarised(ranks, found, most)]
    return read, [replace(report, tables=(), ops=(), lines=(), ledger=()) for _, report in found]


def scale(places: Sequence[Path], ranks: Sequence[int], network: Network | None = None, plan: str = "ddp") -> Forecast:
    """Return the forecast for these numbers of ranks, by the folders of a run (one of each machine) or a job's report;
    over the `network` that is given, else the one that the run measured. `plan`: how a program that ran on one rank
    would share its gradients.

    Raises GobrrrError where too little was recorded, ranks are missing, or one tells nothing of a network.
    """
    from gobrrr.ledger.job.forecast import forecast, measured_network
    from gobrrr.ledger.job.seen import of_job, of_one, of_ranks
    from gobrrr.recording.run_folder.run import load_run
    from gobrrr.trial.receipt.receipt import decoded

    if places[0].is_file():
        if len(places) > 1 or plan != "ddp":
            raise GobrrrError("a job's report is forecast by itself", "leave --as and other folders out")
        seen = of_job(decoded(places[0], Job, "report of a job", "name a run's folder, or its job.json"))
    else:
        recordings = [each for place in places for each in load_run(place)]
        world = [each for each in recordings if (each.start.world_size or 1) > 1]
        named = max((each.start.world_size or 1 for each in recordings), default=1)
        if len({each.start.rank for each in world}) != len(world):
            raise GobrrrError("a rank is there twice", "name each machine's folder of one run once")
        if world and len(world) != named:
            raise GobrrrError(f"{len(world)} of {named} ranks are there", "name the folders of all machines of one run")
        if world and plan != "ddp":
            raise GobrrrError("--as is for a run of one rank: this one says itself what it sends", "leave --as out")
        seen = of_ranks(world, phases_with_waits(world)) if world else of_one(recordings[0], plan)
        if seen is None and world:
            seen = of_job(job_of_folders(list(places)))
    if seen is None:
        raise GobrrrError("too few steps were recorded that all ranks made", "let the program run for longer")
    numbers = (seen.step_ns, *(x for one in seen.plan for x in (one.size, one.calls, one.transfer_ns)))
    if not all(0 <= number < MOST_NS for number in numbers):
        raise GobrrrError(f"{places[0]} tells of collectives that no run has made", "write it anew: gobrrr run")
    if network is None and (network := measured_network(seen)) is None:
        who = "one rank" if seen.ranks == 1 else "this run"
        raise GobrrrError(f"{who} tells nothing of what would carry its messages", "name it: --link 100Gb/s,5us")
    nothing = "no collective was seen: ranks wait for nobody in this forecast"
    return forecast(seen, network, ranks, [] if seen.plan else [nothing])


def page_of(report: Report, mask: Callable[[str], str], profiled: Profiled) -> bytes:
    """The page of a program that has just run: its source may lie anywhere."""
    from gobrrr.report.forms import formats
    from gobrrr.report.timeline.gauge_lines import gauge_lines
    from gobrrr.report.timeline.timeline import step_times, timeline

    view = formats.View(str(Path.cwd()), anywhere=True, mask=mask, steps=step_times(profiled.recording),
                        timeline=timeline(profiled.window), gauges=gauge_lines(profiled.recording))  # fmt: skip
    return formats.render(report, "html", view)


def told(folder: Path, command: list[str], **how: Any) -> Report:
    """The report in a run's folder; where none was written yet it is made, as of report_of()."""
    file = folder / REPORT
    return load(file) if file.is_file() else report_of(folder, command, 0, **how)


def load(path: Path) -> Report:
    """The report in `path`; raises GobrrrError where it cannot be read and TraceError where it is not a report."""
    from gobrrr.report.forms.json import MAX_BYTES, from_json

    try:
        data = files.read(path, MAX_BYTES)
    except OSError as error:
        raise GobrrrError(f"cannot read {path}: {error.strerror}", "check its permissions") from None
    return from_json(data, str(path))


def page_of_folder(folder: Path, report: Report) -> bytes:
    """The page of the first rank's `report`, with the times of all steps in the folder."""
    from gobrrr.recording.run_folder.run import load_run

    return page_of(report, str, Profiled(load_run(folder)[0]))


def report_of(folder: Path, command: list[str], code: int, *, late: GobrrrError | None = None, **how: Any) -> Report:
    """The first rank's report of a run's folder. `how`: portability, patterns to redact, price per hour, rehearsal or
    not, its seconds at most and what to play also, python whose ceilings to take and which rehearses; `late`: as of
    why_empty().

    Raises GobrrrError where there is nothing to judge.
    """
    from gobrrr.recording.run_folder.run import load_run

    if not any(folder.glob("rank*.journal")):
        raise why_empty(folder, code, late)
    first, *others = load_run(folder)
    report = _diagnose(Profiled(first), folder, command, code, **how)[1]
    if not report.step.count:
        raise _cut(folder, code) or late or _no_whole_step(folder, code)
    others = [each for each in others if (each.start.world_size or 0) > 1][:MOST_RANKS]
    how |= {"rehearsal": False}
    return _with_others(report, [_diagnose(Profiled(each), folder, command, code, **how)[1] for each in others])


def _with_others(report: Report, others: Sequence[Report]) -> Report:
    """Return the first rank's report with the findings that other ranks alone have: what holds one holds all."""
    known = {finding.code for finding in report.findings}
    more: dict[str, Finding] = {}
    for other in others:
        for each in other.findings:
            if each.code not in known and each.code[:4] not in ("BRR7", "BRR9"):
                more.setdefault(each.code, replace(each, message=f"on rank {other.rank}: {each.message}"))
    return replace(report, findings=(*report.findings, *more.values()))


def tell(
    folder: Path, command: list[str], code: int, *, kills_before: int | None = None, **how: Any
) -> Report | GobrrrError:
    """As explain(), or in one line why not, which is returned: whatever happens here, the program has ended as it has.
    Of one that died of memory that comes first. `kills_before`: as of out_of_memory.died_of().

    Raises OSError only, where stderr cannot be written.
    """
    died = None
    try:
        if code and (died := died_of(folder, code, kills_before)) is not None:
            show_death(died, sys.stderr, redaction.masker(how.get("patterns", ())))
        return explain(folder, command, code, died=died, **how)
    except GobrrrError as error:
        why = GobrrrError(error.message, error.hint, code)
        if died is not None:  # no step to judge: what ended the program is told
            return GobrrrError(died.sentence, died.reason, code)
    except KeyboardInterrupt:
        why = GobrrrError(f"interrupted; the recording is kept, gobrrr report {folder}", "", code)
    except OSError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        said = f"a defect of gobrrr kept it from judging this run: {at}; the recording is kept in {folder}"
        why = GobrrrError(said, "", code)
    say(str(why))
    return why


def _diagnose(
    profiled: Profiled, folder: Path, command: list[str], code: int, *,
    portability: bool = False, patterns: redaction.Patterns = (), python: str | None = None, rehearsal: bool = True,
    rehearsal_s: float = SECONDS, also: Sequence[str] = (), price: float | None = None,
    died: Diagnosis | None = None, setup: Setup | None = None,
) -> tuple[Ledger, Report]:  # fmt: skip
    here = python or interpreter(command)
    machine = proven(profiled, here)
    start, stage = profiled.recording.start, here if rehearsal else ""
    ledger, report = judged(
        profiled, machine, portability=portability, stage=stage, rehearsal_s=rehearsal_s, also=also,
        command=tuple(redaction.shown(command)), exit_code=code,
        rank=start.rank, world_size=start.world_size, setup=setup, recording=str(folder),
        versions={**start.libraries, "gobrrr": __version__, "python": start.python, "torch": start.torch},
        host=of_hardware(probe()), out_of_memory=died,
    )  # fmt: skip
    return ledger, redaction.redacted(priced(report, price), patterns)


def _write(file: Path, content: bytes, write: Callable[[Path, bytes], object]) -> None:
    try:
        write(file, content)
    except OSError as error:  # a full disk: the report is told all the same
        say(f"cannot write {file}: {error.strerror}")


def _show(reports: list[Report], job: Job | None, shown: dict[str, Any]) -> None:
    """The job first, where there is one, then the report of the rank that the others wait for, else of the first."""
    from gobrrr.report.forms import formats
    from gobrrr.report.text.report import show
    from gobrrr.system.escape import plain

    first = reports[0]
    if job is not None:
        formats.show(job, sys.stderr, formats.View(str(Path.cwd()), anywhere=True, mask=shown["mask"]))
        first = next((report for report in reports if report.rank == job.slowest), first)
        print(f"\nrank {first.rank}:\n", file=sys.stderr)
    show(first, sys.stderr, anywhere=True, **shown)
    for other in reports if job is None else ():
        if other is not first:
            print(f"rank {other.rank}: {plain(other.verdict.sentence)}", file=sys.stderr)


def show_death(died: Diagnosis, stream: TextIO, mask: Callable[[str], str] = str) -> None:
    """Write why a program ran out of memory, as suits the stream; `mask`: as of redaction.masker()."""
    from gobrrr.report.memory.out_of_memory import blocks
    from gobrrr.report.text.page import show

    stream.write("\n")
    show(blocks(died), stream, mask)
    stream.write("\n")
    stream.flush()


def _unwritable(folder: Path) -> OSError | None:
    """Return the error that keeps a page of bytes from being written into a folder, or None."""
    probe = folder / ".probe"
    try:
        probe.write_bytes(bytes(4096))
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return None


def why_empty(folder: Path, code: int, late: GobrrrError | None = None) -> GobrrrError:
    """Why a folder holds no step: no Python reached, no torch, too old a torch, steps of its children only, a program
    that failed or has none. `late`: we have cut it off, and this is what to say of it if nothing else explains it."""
    if (error := _unwritable(folder)) is not None:
        return GobrrrError(f"the recording could not be written into {folder}: {error.strerror}", ROOM)
    try:
        seen = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seen-*.json"))]
    except ValueError:  # a disk that was full has room again
        return GobrrrError(f"the recording could not be written into {folder}: its first file is not whole", ROOM)
    versions = [entry["torch"] for entry in seen if entry.get("torch")]
    ended = f"; the program ended with {code}" if code else ""
    if not versions and (code < 0 or code > 128):  # as of a shell
        return GobrrrError(f"nothing was recorded: the program {_ended(code)} before it imported torch")
    if not seen:
        return GobrrrError(
            f"nothing was recorded: the command started no Python that could be watched{ended}",
            "python -I, -E and -S keep gobrrr out; run the script itself",
        )
    if failures := [entry["failed"] for entry in seen if entry.get("failed")]:
        return GobrrrError(f"nothing was recorded: the process could not be watched: {failures[0]}{ended}",
                           "run the program without gobrrr: does it work?")  # fmt: skip
    from gobrrr.capture.process.bootstrap import OLDEST, is_too_old

    if versions and all(is_too_old(version) for version in versions):
        oldest = ".".join(map(str, OLDEST))
        return GobrrrError(f"torch {versions[0]} is too old to watch", f"gobrrr needs torch {oldest} or newer")
    if (children := _work_of_children(folder)) is not None:
        from gobrrr.rules.validity.measurement import ELSEWHERE

        return GobrrrError(
            "nothing was recorded: the program made no step itself, the processes that it started did "
            f"({children}){ended}",
            ELSEWHERE,
        )
    if late is not None:
        return (
            late
            if versions
            else GobrrrError(f"{late.message}; torch was not imported by then", late.hint, late.exit_code)
        )
    install = f"{seen[0].get('executable', 'python')} -m pip install torch"
    if code:
        before = "before it made a step" if versions else "and never imported torch"
        return GobrrrError(
            f"nothing was recorded: the program {_ended(code)} {before}{_last_words(folder)}",
            _mend(folder) + ("" if versions else f"; if torch is what it lacks: {install}"),
        )
    if not versions:
        return GobrrrError(
            "nothing was recorded: the program never imported torch",
            f"if it should have: {install}; if it starts another program that does: gobrrr run that one",
        )
    return GobrrrError(
        "nothing was recorded: the program made no step that could be seen",
        "mark its loop with `for batch in gobrrr.steps(loader): ...` or wrap it in `with gobrrr.watch(): ...`",
    )


def _cut(folder: Path, code: int) -> GobrrrError | None:
    """Where the recording was cut before a step was in it: how many the program made is not known then."""
    from gobrrr.recording.run_folder.run import unwritable

    said = unwritable(folder)
    return GobrrrError(f"there is no step to judge: {said[0]}; the program {_ended(code)}", ROOM) if said else None


def _no_whole_step(folder: Path, code: int) -> GobrrrError:
    """Return the error of a program that ended too soon: a step is known by the end of the one before it."""
    hint = _mend(folder) if code else "let it make more steps: more epochs, more data"
    said = _last_words(folder) if code else ""
    return GobrrrError(f"there is no step to judge: the program {_ended(code)} before its second step{said}", hint)


def _ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with {code}"


def _last_words(folder: Path) -> str:
    """The error that the program ended with, where its stderr went into a file of the folder."""
    from gobrrr.trial.sandbox.limits import last_words

    return f": {said}" if (said := last_words(folder)) else ""


def _mend(folder: Path) -> str:
    """Return a hint for a program that failed: only a trial's has its streams in files of the folder."""
    if (folder / "stderr").exists():
        return "run it alone; if it works there: a trial has no stdin, and runs in a copy of the working directory"
    return "run it without gobrrr; if it works there, this is a defect of gobrrr"


def _work_of_children(folder: Path) -> str | None:
    """CPU time of the processes that a program without steps has started, where that is the most of it."""
    for file in sorted(folder.glob("seen-*.work")):
        with contextlib.suppress(OSError, ValueError):
            own, children = map(float, file.read_text(encoding="ascii").split())
            if children > own:
                return f"{children:.0f} s of CPU time, {own:.0f} s of its own"
    return None
