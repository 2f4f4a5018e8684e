"""A running program on one screen, of which a snapshot is the same lines without the terminal."""

from __future__ import annotations

from gobrrr.recording.live.now import Now
from gobrrr.report.text.page import WIDTH, rendered
from gobrrr.report.told import running
from gobrrr.report.told.blocks import Fact, facts

KEYS = "q ends this view, the program goes on"
LEAST = 3
"""Lines that are kept for the processes, where there are several."""


def render(
    found: Now, *, width: int = WIDTH, color: bool = False, ascii_only: bool = False, rows: int = 0, keys: bool = False
) -> str:
    """All of it as text that ends with a newline. `rows`: lines there are for it, 0 for no end; `keys`: with what may
    be typed. Pure."""

    def said(*told: Fact) -> str:
        return rendered([told], width=width, color=color, ascii_only=ascii_only)

    text, end = said(*running.body(found)), said(*facts([("next", [KEYS if keys else "", found.next])]))
    processes = running.count(found)
    room = len(found.processes)
    if rows:
        body_rows = max(1, rows - end.count("\n") - min(LEAST, processes))  # the last lines say how to get out
        text = "".join(text.splitlines(keepends=True)[:body_rows])
        room = rows - text.count("\n") - end.count("\n")
    if not processes or room < 1:
        return text + end
    shown = len(found.processes) if processes <= room else min(len(found.processes), max(0, room - 1))
    lines = [running.rank(one) for one in found.processes[:shown]]
    lines += [f"{processes - shown} more with --json"] if shown < processes else []
    return text + said(Fact("ranks", lines)) + end
