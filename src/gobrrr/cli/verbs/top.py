"""`gobrrr top`: a program that `gobrrr run` watches, while it runs. It only reads: the run's folder and /proc."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.cli.interrupts import Interrupts
from gobrrr.cli.reading.report import RUNS, show

if TYPE_CHECKING:
    from gobrrr.cli.screen import Screen
    from gobrrr.pipeline.watching import Watching
    from gobrrr.recording.live.now import Now

FORMS = ("text", "json", "markdown")
KEYS = "q ends this view, the program goes on"
LEAST = 3
"""Lines that are kept for the processes, where there are several."""
EVERY_S = 1.0
"""Seconds between two looks: the program's side writes twenty times as often."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("run", nargs="?", default=RUNS, help="its folder (default: the newest that runs)")
    parser.add_argument("--once", action="store_true", help="one snapshot, then end, as where there is no terminal")
    parser.add_argument("--format", choices=FORMS, help="json: one snapshot (gobrrr.top/1)")
    parser.add_argument("--json", action="store_true", help="the same as --format json")


def run(args: argparse.Namespace) -> int:
    """Until the program ends or `q` is typed. Raises GobrrrError where there is no run to be seen."""
    from gobrrr.cli.screen import can_redraw
    from gobrrr.pipeline.watching import Watching, folder_of, running

    path = Path(args.run)
    form = "json" if args.json else args.format or "text"
    watching = Watching(running(path) if args.run == RUNS else folder_of(path))
    if form == "text" and not args.once and can_redraw(sys.stdout):
        return _live(watching)
    return _once(watching, form)


def _once(watching: Watching, form: str) -> int:
    from gobrrr.report.forms import formats
    from gobrrr.report.text.progress import Patience

    with Patience(f"reading the recording in {watching.folder}"):
        watching.look()
        while watching.behind:
            watching.look()
    show(watching.now(), form, None, formats.View())
    return 0


def _live(watching: Watching) -> int:
    """Draws until there is nothing more to come, and leaves the last picture on the screen that was there before."""
    from gobrrr.cli.screen import Screen
    from gobrrr.report.forms import formats

    with Interrupts():
        with Screen(sys.stdout) as screen:
            if not _until_the_end(watching, screen):
                return 0
        formats.show(watching.now(), sys.stdout)
        sys.stdout.flush()
    return 0


def _until_the_end(watching: Watching, screen: Screen) -> bool:
    """Say whether the program's end was seen, and not a `q` before it."""
    from gobrrr.recording.live.now import CUT, ENDED
    from gobrrr.report.text import page

    while True:
        watching.look()
        found, (columns, rows) = watching.now(), page.size(sys.stdout)
        _, color, ascii_only = page.suited(sys.stdout)
        width = min(page.WIDTH, columns)
        screen.draw(render(found, rows=rows, keys=True, width=width, color=color, ascii_only=ascii_only))
        if found.state in (ENDED, CUT) and not watching.behind:
            return True
        if screen.key(0.0 if watching.behind else EVERY_S) in ("q", "Q"):
            return False


def render(found: Now, *, rows: int = 0, keys: bool = False, **how: Any) -> str:
    """One screen as text that ends with a newline. `rows`: lines there are for it, 0 for no end; `keys`: with what may
    be typed; `how`: as of page.rendered(). Pure."""
    from gobrrr.report.text.page import rendered
    from gobrrr.report.told import running
    from gobrrr.report.told.blocks import Fact, facts

    text = rendered([running.body(found)], **how)
    end = rendered([facts([("next", [KEYS if keys else "", found.next])])], **how)
    processes, room = running.count(found), len(found.processes)
    if rows:
        body_rows = max(1, rows - end.count("\n") - min(LEAST, processes))  # the last lines say how to get out
        text = "".join(text.splitlines(keepends=True)[:body_rows])
        room = rows - text.count("\n") - end.count("\n")
    if not processes or room < 1:
        return text + end
    shown = len(found.processes) if processes <= room else min(len(found.processes), max(0, room - 1))
    lines = [running.rank(one) for one in found.processes[:shown]]
    lines += [f"{processes - shown} more with --json"] if shown < processes else []
    return text + rendered([[Fact("ranks", lines)]], **how) + end
