"""What the ranks of a job say together, as text."""

from __future__ import annotations

from typing import TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.ledger.ranks import Job, RankSummary
from gobrrr.report.page import Page, phrase
from gobrrr.report.text import laid_out, suited

MOST = 16
"""Ranks that are listed: the latest ones, and what could not be read."""


def show_job(job: Job, stream: TextIO) -> None:
    """The verdict, what it would bring, the ranks that were longest at work, and what is not there."""
    width, color, ascii_only = suited(stream)
    page = Page(width, ascii_only)
    told: list[RenderableType] = []
    if job.late_ns:
        told.append(page.row("gain", Text(f"up to {units.duration(job.late_ns)} per step if it were as the median")))
    told.append(page.row("imbalance", Text(f"the longest own time is {units.share(job.imbalance)} above the mean")))
    told += [page.row("ranks", Text(line)) for line in _absent(job)]
    read = [rank for rank in job.ranks if not rank.error]
    last = [phrase((f"gobrrr diagnose {page.clean(_latest(read).source)}", "bold"))] if read else []
    blocks = ([Text(page.clean(job.verdict), style="bold")], told, [_table(job, page)], last)
    stream.write(laid_out(blocks, width, color))


def _latest(ranks: list[RankSummary]) -> RankSummary:
    return max(ranks, key=lambda rank: rank.local_ns)


def _absent(job: Job) -> list[str]:
    found = []
    if job.missing:
        found.append(f"not there: {', '.join(map(str, job.missing[:MOST]))}" + _more(len(job.missing)))
    if job.doubled:
        found.append(f"more than one file says it is rank {', '.join(map(str, job.doubled[:MOST]))}")
    if broken := [rank for rank in job.ranks if rank.error]:
        found.append(f"{len(broken)} could not be read")
    return found


def _more(count: int) -> str:
    return f" and {count - MOST} more" if count > MOST else ""


def _table(job: Job, page: Page) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("rank", "step", "own time", "exposed communication", "device busy"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("by itself", overflow="ellipsis", no_wrap=True)
    read = sorted((rank for rank in job.ranks if not rank.error), key=lambda rank: -rank.local_ns)
    for rank in read[:MOST]:
        step = rank.step_ns or 1.0
        table.add_row(
            str(rank.rank) if rank.rank is not None else page.clean(rank.source[-24:]), units.duration(rank.step_ns),
            units.duration(rank.local_ns),
            f"{units.duration(rank.exposed_communication_ns)} ({units.share(rank.exposed_communication_ns / step)})",
            units.share(rank.busy_ns / step), " ".join((rank.bound, *rank.codes[:3])),
        )  # fmt: skip
    for rank in [rank for rank in job.ranks if rank.error][:MOST]:
        table.add_row("", "", "", "", "", page.clean(rank.error))
    if len(read) > MOST:
        table.add_row("...", *[""] * 4, f"{len(read) - MOST} more, each with less own time")
    return table
