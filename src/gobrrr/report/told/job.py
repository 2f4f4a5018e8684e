"""The report of a job over all its ranks, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.ledger.job.lateness import Group, Waiting
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.report.text.page import Page, phrase
from gobrrr.report.text.report import laid_out, suited
from gobrrr.system.escape import markdown

GROUPS, LAST = 4, 3
"""Process groups that are told, most waiting first, and of each the ranks that came last most often."""
MOST = 16
"""Ranks that are listed: the latest ones, and what could not be read."""


def show_job(job: Job, stream: TextIO) -> None:
    """Write it to a stream as suits that."""
    width, color, ascii_only = suited(stream)
    stream.write(render(job, width=width, color=color, ascii_only=ascii_only))


def render(job: Job, *, width: int = 100, color: bool = False, ascii_only: bool = False) -> str:
    """The verdict, what it would bring, the ranks that were longest at work, and what is not there."""
    page = Page(width, ascii_only)
    rows: list[RenderableType] = [page.row(title, Text(page.clean(line))) for title, line in told(job)]
    read = [rank for rank in job.ranks if not rank.error]
    last = [phrase((f"gobrrr diagnose {page.clean(_latest(read).source)}", "bold"))] if read else []
    blocks = ([Text(page.clean(job.verdict), style="bold")], rows, [_table(job, page)], last)
    return laid_out(blocks, width, color)


def job_to_markdown(job: Job) -> str:
    """The same as GitHub-flavoured Markdown that ends with a newline; everything foreign is escaped."""
    heads, rows, more = _rows(job)
    lines = [f"**{markdown(job.verdict)}**", "", *(f"- {title}: {markdown(line)}" for title, line in told(job)), ""]
    lines += [f"| {' | '.join(heads)} |", f"|{'--:|' * (len(heads) - 1)}---|"]
    lines += [f"| {' | '.join(map(markdown, row))} |" for row in rows]
    return "\n".join([*lines, *(["", more] if more else [])]) + "\n"


def told(job: Job) -> Iterator[tuple[str, str]]:
    """Title and sentence."""
    if job.late_ns:
        yield "gain", f"up to {units.duration(job.late_ns)} per step if it were as the median"
    yield "imbalance", f"the longest own time is {units.share(job.imbalance)} above the mean"
    yield from (("ranks", line) for line in _absent(job))
    yield from (line for group in job.groups[:GROUPS] for line in _of_group(group))
    if len(job.groups) > GROUPS:
        yield "groups", f"{len(job.groups) - GROUPS} more, each with less waiting"


def _of_group(group: Group) -> Iterator[tuple[str, str]]:
    """Transfer and waiting, who came last, the link, and what is not sure of it."""
    most, least = ("at most ", "at least ") if group.partial else ("", "")
    name = f"group {group.group}" if group.group else f"collectives of {group.ranks}"
    if group.calls:
        yield (
            "waiting",
            f"{name}, {len(group.waits)} ranks: {most}{units.duration(group.transfer_ns)} of transfer per step; on the "
            f"median rank {least}{units.duration(group.waiting_ns)} of waiting for the latest, "
            f"{units.duration(group.exposed_waiting_ns)} of it with nothing beside it",
        )
        if last := ", ".join(_last(one, group.calls) for one in group.waits[:LAST] if one.last):
            yield "last", last
    if group.link:
        yield ("slow link", f"{group.link}: BRR702") if group.slow else ("link", group.link)
    if group.doubts:
        yield (
            ("doubts" if group.calls else "waiting"),
            "; ".join(group.doubts) if group.calls else (f"{name}: " + "; ".join(group.doubts)),
        )


def _last(one: Waiting, calls: int) -> str:
    who = f"rank {one.rank}" if one.rank is not None else one.source[-24:]
    return f"{who} to {one.last} of {calls} calls ({units.duration(one.late_ns)} per step after the one before it)"


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


def _rows(job: Job) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Heads, a row for each rank that is listed, raw as its file has it, and what is said of the others."""
    heads = ("rank", "step", "own time", "exposed comm.", "of it waiting", "device busy", "by itself")
    read = sorted((rank for rank in job.ranks if not rank.error), key=lambda rank: -rank.local_ns)
    waited = waits(job)
    rows: list[tuple[str, ...]] = [
        (
            str(rank.rank) if rank.rank is not None else rank.source[-24:], units.duration(rank.step_ns),
            units.duration(rank.local_ns),
            f"{units.duration(rank.exposed_communication_ns)} "
            f"({units.share(rank.exposed_communication_ns / (rank.step_ns or 1.0))})",
            units.duration(waited[rank.source]) if rank.source in waited else "",
            units.share(rank.busy_ns / (rank.step_ns or 1.0)), " ".join((rank.bound, *rank.codes[:3])),
        )
        for rank in read[:MOST]
    ]  # fmt: skip
    rows += [("", "", "", "", "", "", rank.error) for rank in [rank for rank in job.ranks if rank.error][:MOST]]
    return heads, rows, f"{len(read) - MOST} more, each with less own time" if len(read) > MOST else ""


def waits(job: Job) -> dict[str, float]:
    """Return by file the ns per step of waiting for later ranks, with no other work beside it."""
    found: dict[str, float] = {}
    for one in (one for group in job.groups for one in group.waits):
        found[one.source] = found.get(one.source, 0.0) + one.exposed_waiting_ns
    return found


def _table(job: Job, page: Page) -> Table:
    heads, rows, more = _rows(job)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for at, head in enumerate(heads[:-1]):
        wide = max(len(head), *(len(row[at]) for row in rows)) if rows else len(head)
        table.add_column(head, justify="right", no_wrap=True, min_width=wide)
    table.add_column(heads[-1], overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*map(page.clean, row))
    if more:
        table.add_row("...", *[""] * 5, more)
    return table
