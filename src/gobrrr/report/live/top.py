"""A running program as text: one screen, of which a snapshot is the same lines without the terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.recording.live import now
from gobrrr.recording.live.now import Now, Process
from gobrrr.report.live import top_rows
from gobrrr.report.text.page import Page, phrase
from gobrrr.report.text.report import MIN_WIDTH, WIDTH, laid_out, suited

KEYS = "q ends this view, the program goes on"
_SAID = {
    now.WAITING: "has made no step yet",
    now.ELSEWHERE: "runs where it cannot be seen from here, as its recording says",
    now.CUT: "ended without a word: it was killed, or crashed",
}
LEAST = 3
"""Lines that are kept for the processes, where there are several."""
_STYLES = {now.RUNNING: "bold green", now.CUT: "bold red"}


def show(found: Now, stream: TextIO) -> None:
    """One snapshot, as it suits the stream."""
    width, color, ascii_only = suited(stream)
    stream.write(render(found, width=width, color=color, ascii_only=ascii_only))


def render(
    found: Now, *, width: int = WIDTH, color: bool = False, ascii_only: bool = False, rows: int = 0, keys: bool = False
) -> str:
    """All of it as text that ends with a newline. `rows`: lines there are for it, 0 for no end; `keys`: with what may
    be typed. Pure."""
    page = Page(max(width, MIN_WIDTH), ascii_only)
    first = found.processes[0] if found.processes else None
    body: list[RenderableType] = [page.row("program", *_program(found, first, page))]
    if first is not None and first.steps:
        body += top_rows.steps(first, page)
    elif found.state != now.WAITING:
        body.append(page.row("step", Text("no whole step is in its recording")))
    if first is not None:
        body += [*top_rows.memory(first, page), *top_rows.cores(first, page), *_doubts(found, page)]
    text = laid_out([body], page.width, color)
    end = laid_out(
        [[page.row("next", *([Text(KEYS)] if keys else []), Text(page.clean(found.next)))]], page.width, color
    )
    if not rows:
        return text + _ranks(found, page, len(found.processes), color) + end
    body_rows = max(1, rows - end.count("\n") - min(LEAST, _num(found)))  # the last lines say how to get out
    text = "".join(text.splitlines(keepends=True)[:body_rows])
    return text + _ranks(found, page, rows - text.count("\n") - end.count("\n"), color) + end


def _program(found: Now, first: Process | None, page: Page) -> list[Text]:
    """Return the program, whether it still runs, and for how long."""
    said = _SAID.get(found.state, found.state)
    if first is not None and first.ran_ns is not None and found.state in (now.RUNNING, now.WAITING):
        said += f" for {top_rows.long(first.ran_ns)} (pid {first.pid})"
    elif first is not None and first.ran_ns is not None and found.state == now.ENDED:
        said += f" after {top_rows.long(first.ran_ns)}"
    read = f"; reading its recording: {units.share(found.read)}" if found.read < 1 else ""
    return [
        Text(page.clip(found.program, page.body), style="bold"),
        phrase((said, _STYLES.get(found.state, "bold")), read),
    ]


def _doubts(found: Now, page: Page) -> list[RenderableType]:
    """Return the doubts of all processes, each said once."""
    said = list(dict.fromkeys(page.clip(text, 2 * page.body) for one in found.processes for text in one.doubts))
    more = [f"{len(said) - 3} more with --json"] if len(said) > 4 else []
    return [page.row("doubts", *(Text(text) for text in [*said[: 3 if more else 4], *more]))] if said else []


def _num(found: Now) -> int:
    """Processes that have a line each: where there is one alone, none."""
    num = len(found.processes) + found.more_processes
    return num if num > 1 else 0


def _ranks(found: Now, page: Page, room: int, color: bool) -> str:
    """A line for each process, where there are several: the first of them, as many as there is room for."""
    told, num = found.processes, _num(found)
    if not num or room < 1:
        return ""
    shown = len(told) if num <= room else min(len(told), max(0, room - 1))
    lines = [top_rows.rank(one, page) for one in told[:shown]]
    if shown < num:
        lines.append(Text(f"{num - shown} more with --json"))
    return laid_out([[page.row("ranks", *lines)]], page.width, color)
