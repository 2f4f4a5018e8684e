"""`gobrrr lab`: published figures of efficient deep learning, measured again on this machine."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.errors import GobrrrError

if TYPE_CHECKING:
    from gobrrr_lab.measure.experiment import Experiment
    from gobrrr_lab.measure.result import Result

FEWEST_S = 5.0
"""Seconds of an experiment: less tells nothing."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add the options: which experiments to measure, for how long, and the file for the results."""
    parser.add_argument("what", nargs="*", metavar="NAME", help="experiments, their numbers, or chapters; none: list")
    parser.add_argument("--all", action="store_true", help="all that can run here")
    parser.add_argument("--minutes", type=float, help="for all that is measured (default: some 20 s each)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the results as .json, .md or .html")
    parser.add_argument("--compare", metavar="DIR", help="show the receipts in a folder (or a file of -o) side by side")


def run(args: argparse.Namespace) -> int:
    """Print to stdout, progress to stderr. Whatever was measured is told, also after Ctrl-C."""
    from gobrrr_lab import chosen, load
    from gobrrr_lab.measure.runner import kept

    if args.minutes is not None and not 0 < args.minutes < 1e5:
        raise GobrrrError("--minutes must be a number above 0", "--minutes 20")
    if args.output is not None:
        from gobrrr_lab.show.page import check_target

        check_target(args.output)
    if args.compare is not None:
        return _beside(args.compare, args.output)
    if not args.what and not args.all:
        return _list(load(), kept())
    known = load() if args.all else chosen(args.what)
    results: list[Result] = []
    try:
        return _measured(known, args.minutes, results)
    finally:
        _finish(results, args.output)


def _list(known: Mapping[str, Experiment], results: list[Result]) -> int:
    from gobrrr.report.text.page import suited
    from gobrrr_lab.measure.needs import lacking
    from gobrrr_lab.show.text import listing

    width, color, _ = suited(sys.stdout)
    missing = {name: lacking(one) for name, one in known.items()}
    sys.stdout.write(listing(known, missing, results, width, color))
    return 0


def _measured(known: Mapping[str, Experiment], minutes: float | None, results: list[Result]) -> int:
    """Each result is printed as it comes, and added; the exit code, which is not 0 where Ctrl-C or SIGTERM ended it."""
    from gobrrr.cli.interrupts import Interrupts
    from gobrrr.machine.measure.store import load_or_measure
    from gobrrr.report.text import progress
    from gobrrr.report.text.page import suited
    from gobrrr_lab.measure.needs import lacking
    from gobrrr_lab.measure.runner import run
    from gobrrr_lab.show.text import told

    can = [one for one in known.values() if not lacking(one)]
    seconds = max(FEWEST_S, 60.0 * minutes / max(1, len(can))) if minutes else None
    width, color, ascii_only = suited(sys.stdout)
    with Interrupts() as interrupts:
        try:
            machine = load_or_measure(notify=_say)
            whole, most = sum(seconds or one.seconds for one in can) / 60, minutes or math.inf
            _say(f"{len(can)} experiments, about {min(whole, most):.1f} minutes")
            for result in progress.counted(run(known, machine, seconds, within=60 * most), len(known), "measuring"):
                results.append(result)
                sys.stdout.write(told(result, known[result.name], width, color, ascii_only) + "\n")
                sys.stdout.flush()
        except KeyboardInterrupt:
            return interrupts.exit_code
    if left := len(known) - len(results):
        _say(f"the minutes were spent before the last {left}: {math.ceil(whole)} would do for all")
    return 0


def _finish(results: list[Result], output: str | None) -> None:
    from gobrrr_lab.show.text import counted

    print(counted(results))
    if output:
        _put(results, output)


def _beside(folder: str, output: str | None) -> int:
    from gobrrr_lab.measure.runner import kept
    from gobrrr_lab.show.page import beside

    results = kept(Path(folder))
    if not results:
        raise GobrrrError(f"{folder} holds no results of gobrrr lab", "gobrrr lab --all -o DIR/NAME.json writes some")
    print(beside(results), end="")
    if output:
        _put(results, output)
    return 0


def _put(results: list[Result], output: str) -> None:
    from gobrrr.cli.reading.report import put
    from gobrrr_lab.show.page import written

    put(written(results, output), output)


def _say(text: str) -> None:
    print(f"gobrrr: {text}", file=sys.stderr, flush=True)
