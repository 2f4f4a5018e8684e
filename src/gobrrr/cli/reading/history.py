"""`gobrrr history`: the runs of a folder one after another, and since which one a step is longer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gobrrr.cli import options
from gobrrr.cli.reading.report import RUNS, add_formats, format_of, show
from gobrrr.errors import GobrrrError
from gobrrr.pipeline.file_names import DIAGNOSIS, JOURNAL, NO_BASELINE, RECEIPT, REPORT, SWEEP
from gobrrr.report.forms import formats
from gobrrr.report.forms.formats import View
from gobrrr.system.run_folder import CLAIM

if TYPE_CHECKING:
    from gobrrr.recording.model.setup import Setup
    from gobrrr.rules.verdict.history import History, Kept

MAKE = "gobrrr run script.py leaves one in .gobrrr"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("folder", nargs="?", default=RUNS, type=Path, metavar="FOLDER",
                        help=f"a folder of runs ({RUNS})")  # fmt: skip
    parser.add_argument("--program", metavar="NAME", help="the runs of this program alone: train.py, or train")
    parser.add_argument("--last", type=options.at_least_one, metavar="N", help="the newest N runs of each program")
    add_formats(parser, "history")


def run(args: argparse.Namespace) -> int:
    """Read all runs, tell them; raises GobrrrError where there is none."""
    from gobrrr.report.text.progress import Patience
    from gobrrr.rules.verdict.history import history

    formats.check(form := format_of(args), "history")
    with Patience(f"reading the runs in {args.folder}"):
        every, unread = runs_in(args.folder)
    if not every and not unread:
        raise GobrrrError(f"{args.folder} holds no runs", MAKE)
    found = history(str(args.folder), every, unread, str(args.folder.absolute().parent))
    show(_chosen(found, args), form, args.output, View(str(Path.cwd())))
    return 0


def runs_in(folder: Path) -> tuple[list[Kept], list[tuple[str, str]]]:
    """The reports of the runs in a folder, and (run, why it has none that can be read). Tunings and sweeps are left
    out. Raises GobrrrError where the folder cannot be read."""
    from gobrrr.rules.verdict.history import Kept

    found: list[Kept] = []
    unread: list[tuple[str, str]] = []
    try:
        places = sorted(place for place in folder.iterdir() if place.is_dir())
    except OSError as error:
        raise GobrrrError(f"cannot read {folder}: {error.strerror}", MAKE) from None
    for place in places:
        if isinstance(one := _read(place), Kept):
            found.append(one)
        elif one:
            unread.append((place.name, one))
    return found, unread


def _read(place: Path) -> Kept | str:
    """The run of a folder, or why it cannot be read; empty where the folder is of something else."""
    from gobrrr.pipeline.runs import load
    from gobrrr.rules.verdict.history import Kept

    file = place / REPORT
    try:
        if file.exists():
            report = load(file)
            began = report.setup.began_ns if report.setup else file.stat().st_mtime_ns
            small = replace(report, tables=(), ops=(), rehearsed=(), saved=())  # hundreds are held at once
            return Kept(place.name, began, small)
        if any((place / name).exists() for name in (RECEIPT, SWEEP, JOURNAL, DIAGNOSIS)):
            return ""
        ours = (place / CLAIM).exists() or any(place.glob("rank*.journal"))
        return "no report: it is still running, or ended before it was judged" if ours else ""
    except GobrrrError as error:
        return error.message.removeprefix(f"{file}: ")
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _chosen(found: History, args: argparse.Namespace) -> History:
    """The programs and runs that are asked for."""
    wanted, names = args.program, [(each, PurePath(each.name)) for each in found.programs]
    programs = [each for each, path in names if not wanted or wanted in (each.name, path.name, path.stem)]
    if not programs and wanted:
        known = ", ".join(program.name for program in found.programs) or "none"
        raise GobrrrError(f"no run of {wanted} in {found.folder}", f"programs there: {known}")
    return replace(found, programs=tuple(
        replace(program, runs=program.runs[-(args.last or len(program.runs)):]) for program in programs
    ))  # fmt: skip


def baseline_for(
    folder: Path, command: Sequence[str], host: str, setup: Setup | None, before_ns: int | None = None
) -> tuple[Kept, float]:
    """The newest run in the folder that a run of this command here can be held against, of those that began before and
    did not fail a check, and what two starts differ by. Raises GobrrrError where there is none."""
    from gobrrr.rules.verdict.history import baseline

    every = [each for each in runs_in(folder)[0] if not (folder / each.folder / NO_BASELINE).exists()]
    every = [each for each in every if before_ns is None or each.began_ns < before_ns]
    if (found := baseline(every, command, host, setup)) is None:
        why = f"{folder} holds no run to rely on of this command here, with these threads and remedies"
        raise GobrrrError(why, f"make one with gobrrr run, or see gobrrr history {folder}")
    return found
