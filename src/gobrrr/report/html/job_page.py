"""The page of a job: a lane for each rank on one scale, which rank waits for which, and every rank's figures."""

from __future__ import annotations

from typing import Any

from gobrrr import units
from gobrrr.ledger.job.culprits import Shared
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.recording.model.phases import NAMES
from gobrrr.report.html import charts
from gobrrr.report.html.charts import Part
from gobrrr.report.html.report_page import MEANS, kind_of
from gobrrr.report.told.job import name, ranks, told, waits

MOST_LANES, MOST_ROWS = 64, 512
"""Ranks that are drawn, those with most own time, and that are listed."""
WAITING, TRANSFER, DEVICE = "waits for later ranks", "communication", "phase0"


PHASES = dict(zip(("phase0", "phase1", "phase2", "phase6", "phase4"), NAMES, strict=True))
"""Phases by the class of their colour; phase3 has that of communication."""
KEY = {DEVICE: "the device works", **MEANS, "waiting": WAITING, "transfer": TRANSFER}


def parts(job: Job, view: object = None) -> dict[str, Any]:
    """Everything that the template needs."""
    read = [rank for rank in job.ranks if not rank.error]
    longest = max((rank.step_ns for rank in read), default=0.0)
    latest = sorted(read, key=lambda rank: -rank.local_ns)
    shown = sorted(latest[:MOST_LANES], key=lambda rank: (1 << 62 if rank.rank is None else rank.rank, rank.source))
    waited = waits(job)
    bars = [
        (rank, _parts(rank, waited.get(rank.source, 0.0)) if job.shared is None else _phases(rank, job.shared))
        for rank in shown
    ]
    key = KEY if job.shared is None else PHASES | {"waiting": WAITING, "transfer": TRANSFER}
    used = {part.kind for _, found in bars for part in found if part.value > 0}
    return {
        "job": job, "sure": job.bound != "unreliable", "told": told(job),
        "lanes": [{"name": name(rank), "late": rank.rank is not None and rank.rank == job.slowest,
                   "step": units.duration(rank.step_ns), "own": units.duration(rank.local_ns),
                   "chart": charts.stack(found, f"The step of {name(rank)}", longest)} for rank, found in bars],
        "more": len(read) - len(shown), "listed": ranks(job, MOST_ROWS),
        "unlisted": max(0, len(read) - MOST_ROWS),
        "errors": [(rank.source, rank.error) for rank in job.ranks if rank.error][:MOST_LANES],
        "key": [(charts.swatch(kind), words) for kind, words in key.items() if kind in used],
    }  # fmt: skip


def _phases(rank: RankSummary, shared: Shared) -> list[Part]:
    """Its own time by phase, then what it waits for the latest rank, and communication."""
    moving = min(shared.communication_ns, rank.exposed_communication_ns)
    found = [(phase, ns, kind) for (phase, ns), kind in zip(rank.phases, PHASES, strict=bool(rank.phases))]
    found += [(WAITING, rank.exposed_communication_ns - moving, "waiting"), (TRANSFER, moving, "transfer")]
    return [Part(what, ns, kind, f"{name(rank)}, {what}: {units.duration(ns)}") for what, ns, kind in found]


def _parts(rank: RankSummary, waited: float) -> list[Part]:
    """Its own time by account, then what it waits for others, then what is left of exposed communication."""
    waiting = min(waited, rank.exposed_communication_ns)
    found = [(account.replace("_", " "), ns, DEVICE if account == "device work" else kind_of(account))
             for account, ns in rank.accounts if account != TRANSFER]  # fmt: skip
    found += [(WAITING, waiting, "waiting"), (TRANSFER, rank.exposed_communication_ns - waiting, "transfer")]
    return [Part(what, ns, kind, f"{name(rank)}, {what}: {units.duration(ns)}") for what, ns, kind in found]
