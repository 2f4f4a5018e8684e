"""The page of a job: a lane for each rank on one scale, which rank waits for which, and every rank's figures."""

from __future__ import annotations

from typing import Any

from gobrrr import units
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part
from gobrrr.report.html.tables import Cell, Table
from gobrrr.report.html.time_page import KIND, MEANS
from gobrrr.report.text.time_table import ACCOUNTS
from gobrrr.report.told.job import told, waits

MOST_LANES, MOST_ROWS = 64, 512
"""Ranks that are drawn, those with most own time, and that are listed."""
WAITING, TRANSFER, DEVICE = "waits for later ranks", "communication", "phase0"


KEY = {DEVICE: "the device works", **MEANS, "waiting": WAITING, "transfer": TRANSFER}


def parts(job: Job) -> dict[str, Any]:
    """Everything that the template needs."""
    read = [rank for rank in job.ranks if not rank.error]
    longest = max((rank.step_ns for rank in read), default=0.0)
    latest = sorted(read, key=lambda rank: -rank.local_ns)
    shown = sorted(latest[:MOST_LANES], key=_place)
    waited = waits(job)
    bars = [(rank, _parts(rank, waited.get(rank.source, 0.0))) for rank in shown]
    used = {part.kind for _, found in bars for part in found if part.value > 0}
    return {
        "job": job, "sure": job.bound != "unreliable", "told": list(told(job)),
        "lanes": [{"name": _name(rank), "late": rank.rank is not None and rank.rank == job.slowest,
                   "step": units.duration(rank.step_ns), "own": units.duration(rank.local_ns),
                   "chart": charts.stack(found, f"The step of {_name(rank)}", longest)} for rank, found in bars],
        "more": len(read) - len(shown), "listed": _table(job, latest[:MOST_ROWS], waited),
        "unlisted": max(0, len(read) - MOST_ROWS),
        "errors": [(rank.source, rank.error) for rank in job.ranks if rank.error][:MOST_LANES],
        "key": [(charts.swatch(kind), words) for kind, words in KEY.items() if kind in used],
    }  # fmt: skip


def _place(rank: RankSummary) -> tuple[int, str]:
    return (rank.rank if rank.rank is not None else 1 << 62, rank.source)


def _name(rank: RankSummary) -> str:
    return f"rank {rank.rank}" if rank.rank is not None else rank.source[-24:]


def _parts(rank: RankSummary, waited: float) -> list[Part]:
    """Its own time by account, then what it waits for others, then what is left of exposed communication."""
    kinds = {name: KIND[style] for name, (style, _) in ACCOUNTS.items()} | {"device work": DEVICE}
    waiting = min(waited, rank.exposed_communication_ns)
    found = [(name.replace("_", " "), ns, kinds.get(name, "rest")) for name, ns in rank.accounts if name != TRANSFER]
    found += [(WAITING, waiting, "waiting"), (TRANSFER, rank.exposed_communication_ns - waiting, "transfer")]
    return [Part(name, ns, kind, f"{_name(rank)}, {name}: {units.duration(ns)}") for name, ns, kind in found]


def _table(job: Job, listed: list[RankSummary], waited: dict[str, float]) -> Table | None:
    heads = (("rank", True), ("step", True), ("own time", True), ("exposed comm.", True), ("of it waiting", True),
             ("last to", True), ("device busy", True), ("by itself", False), ("file", False))  # fmt: skip
    last: dict[str, int] = {}
    for one in (one for group in job.groups for one in group.waits):
        last[one.source] = last.get(one.source, 0) + one.last
    rows = tuple(_row(rank, waited.get(rank.source), last.get(rank.source)) for rank in listed)
    return Table("Ranks, the one with most own time first", heads, rows) if rows else None


def _row(rank: RankSummary, waited: float | None, last: int | None) -> tuple[Cell, ...]:
    busy = rank.busy_ns / (rank.step_ns or 1.0)
    return (
        Cell("" if rank.rank is None else str(rank.rank), float(rank.rank if rank.rank is not None else -1)),
        _time(rank.step_ns), _time(rank.local_ns), _time(rank.exposed_communication_ns),
        _time(waited) if waited is not None else Cell("", -1.0),
        Cell(f"{last} calls", last) if last else Cell("", 0.0), Cell(units.share(busy), busy),
        Cell(" ".join((rank.bound, *rank.codes[:3]))), Cell(rank.source),
    )  # fmt: skip


def _time(ns: float) -> Cell:
    return Cell(units.duration(ns), ns)
