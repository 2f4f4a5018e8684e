"""The report of a job over all its ranks, as blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from gobrrr import units
from gobrrr.ledger.job.blame import told as sentence
from gobrrr.ledger.job.culprits import Shared
from gobrrr.ledger.job.forecast import Forecast
from gobrrr.ledger.job.lateness import Group, Waiting
from gobrrr.ledger.job.ranks import Job, RankSummary
from gobrrr.ledger.model.sums import sums
from gobrrr.recording.model.phases import NAMES
from gobrrr.report.forms.formats import View
from gobrrr.report.told.blocks import Block, Cell, Fact, Groups, Sentence, Table, facts, time_cell

GROUPS, LAST = 4, 3
"""Process groups that are told, most waiting first, and of each the ranks that came last most often."""
WORTH = 0.02
"""Share of the step that collectives must take to be split into hidden and exposed; share that is called none."""
SIZES = 3
"""Kinds and sizes of collectives that are told of a group."""
MODEL = "each rank works as much as now; rings and trees; each rank's step drawn as those seen (docs/find-out/scale.md)"
MOST = 16
"""Ranks that are listed: the latest ones, and what could not be read."""


def blocks(job: Job, view: View) -> Groups:
    """The verdict, what it would bring, the ranks that were longest at work, and what is not there."""
    read = [rank for rank in job.ranks if not rank.error]
    latest = max(read, key=lambda rank: rank.local_ns, default=None)
    errors = [rank for rank in job.ranks if rank.error][:MOST]
    left = len(read) - MOST
    more = [("more", [f"{left} ranks, each with less own time"] if left > 0 else []),
            ("unread", [rank.error for rank in errors])]  # fmt: skip
    table = ranks(job, MOST)
    ended: list[Block] = [Sentence((((job.ended, "bold"),),))] if job.ended else []
    return [
        *([ended] if ended else []),
        [Sentence((((job.verdict, "bold"),),))], told(job), [*([table] if table else []), *facts(more)],
        facts([("next", [((f"gobrrr diagnose {latest.source}", "bold"),
                          (f"   {name(latest)}: waits least for others", "dim"))]
                if latest and not job.live else [])]),
    ]  # fmt: skip


def told(job: Job) -> list[Fact]:
    """Facts of all ranks together, and of each process group."""
    return [Fact(label, [line for _, line in lines]) for label, lines in groupby(_told(job), key=lambda told: told[0])]


def _told(job: Job) -> Iterator[tuple[str, str]]:
    yield from (("ended", line) for line in job.endings[:MOST])
    yield from (("doubts", line) for line in job.doubts)
    if job.shared is not None:
        yield from _of_steps(job.shared, len(job.ranks), job.alone_ns)
        yield from _hidden(job.shared, sum(group.transfer_ns for group in job.groups))
        yield from (("why", f"rank {one.ranks[0]}: {one.why}") for one in job.blames if one.why)
        told = (sentence(one, job.shared.step_ns) for one in job.blames)
        yield from (("also", each) for each in told if each != job.verdict)
    elif job.late_ns:
        yield "gain", f"up to {units.duration(job.late_ns)} per step if it were as the median"
    yield from [("exposed", job.exposed)] if job.exposed else []
    yield from (("causes", f"{what}: about {units.duration(ns)} a step") for what, ns in job.causes[:SIZES])
    yield "imbalance", f"the longest own time is {units.share(job.imbalance)} above the mean"
    yield from (("ranks", line) for line in _absent(job))
    of_group = _of_group if job.shared is None else _sent
    yield from (line for group in job.groups[:GROUPS] for line in of_group(group))
    if len(job.groups) > GROUPS:
        yield "groups", f"{len(job.groups) - GROUPS} more, each with less waiting"


def _of_steps(shared: Shared, num_ranks: int, alone_ns: float | None) -> Iterator[tuple[str, str]]:
    """Parts of the job's step, and how many ranks' work that is."""
    parts = ((shared.own_ns, "own time of the median rank"), (shared.imbalance_ns, "waiting for the latest rank"),
             (shared.communication_ns, "communication"))  # fmt: skip
    said = ", ".join(f"{units.duration(ns)} {what}" for ns, what in parts)
    yield "step", f"{units.duration(shared.step_ns)}, mean of {shared.steps} steps that all ranks made: {said}"
    if shared.left_out:
        (number, ns), more = shared.left_out[0], len(shared.left_out) - 1
        yield "left out", f"step {number}, of {units.duration(ns)}{f', and {more} more' if more else ''}"
    if shared.step_ns:
        one, how = shared.own_ns, "that wait for nobody (modelled)"
        if alone_ns is not None:
            one, how = alone_ns, f"(measured: one by itself takes {units.duration(alone_ns)} a step)"
        yield "speed-up", f"{num_ranks} ranks do the work of {num_ranks * one / shared.step_ns:.1f} {how}"


def _hidden(shared: Shared, transfer_ns: float) -> Iterator[tuple[str, str]]:
    """Transfer behind computing: what the step does not show of it."""
    if transfer_ns > WORTH * shared.step_ns:
        hidden = max(0.0, transfer_ns - shared.communication_ns) / transfer_ns
        much = f"{units.share(hidden)} of it is" if hidden > WORTH else "none of it is"
        yield (
            "hidden",
            f"collectives take {units.duration(transfer_ns)} a step once all are there; {much} behind computing",
        )


def _sent(group: Group) -> Iterator[tuple[str, str]]:
    """Kinds and sizes with most transfer, of the profiled steps."""
    for one in group.sizes[:SIZES]:
        size = f" of {units.size(one.size)}" if one.size else ""
        rate = f", {units.byte_rate(one.bus_rate)} on the bus" if one.bus_rate else ""
        alone = f"; {units.duration(one.alone_ns)} where nobody computes" if one.alone_ns is not None else ""
        called = units.several(one.kind, one.calls)
        yield (
            "sends",
            f"{called}{size} in the profiled steps: {units.duration(one.transfer_ns)} each once all are there"
            f"{rate}{alone}",
        )
    yield from [("doubts", "; ".join(group.doubts))] if group.doubts else []


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
        doubts = "; ".join(group.doubts)
        yield ("doubts", doubts) if group.calls else ("waiting", f"{name}: {doubts}")


def _last(one: Waiting, calls: int) -> str:
    late = units.duration(one.late_ns)
    return f"{name(one)} to {one.last} of {calls} calls ({late} per step after the one before it)"


def _absent(job: Job) -> list[str]:
    found = []
    if job.shared is not None and (few := [name(rank) for rank in job.ranks if not rank.phases and not rank.error]):
        found.append(f"too few steps watched of {', '.join(few[:MOST])}: not judged")
    if job.missing:
        more = f" and {len(job.missing) - MOST} more" if len(job.missing) > MOST else ""
        found.append(f"not there: {', '.join(map(str, job.missing[:MOST]))}{more}")
    if job.doubled:
        found.append(f"more than one file says it is rank {', '.join(map(str, job.doubled[:MOST]))}")
    if broken := [rank for rank in job.ranks if rank.error]:
        found.append(f"{len(broken)} could not be read")
    return found


def ranks(job: Job, most: int) -> Table | None:
    """Each that could be read, the one with most own time first."""
    heads = (("rank", True), ("step", True), ("own time", True), ("exposed comm.", True), ("waiting in it", True),
             ("last to", True), ("device busy", True), ("bound alone", False), ("file", False))  # fmt: skip
    read = sorted((rank for rank in job.ranks if not rank.error), key=lambda rank: -rank.local_ns)
    if job.shared is not None:
        names = ("rank", "own time", *NAMES, "waits, sends")
        return Table("", tuple((name, True) for name in names), tuple(map(_phases, read[:most])))
    waited, last = waits(job), Counter[str]()
    for one in (one for group in job.groups for one in group.waits):
        last[one.source] += one.last
    rows = tuple(_rank(rank, waited.get(rank.source), last[rank.source]) for rank in read[:most])
    return Table("", heads, rows, on_page=("last to", "file")) if rows else None


def _phases(rank: RankSummary) -> tuple[Cell, ...]:
    number = Cell(name(rank).removeprefix("rank "), float(-1 if rank.rank is None else rank.rank))
    parts = dict(rank.phases)
    own = (rank.local_ns, *(parts.get(each, 0.0) for each in NAMES), rank.exposed_communication_ns)
    return number, *map(time_cell, own)


def _rank(rank: RankSummary, waited: float | None, last: int) -> tuple[Cell, ...]:
    whole = rank.step_ns or 1.0
    exposed, busy = rank.exposed_communication_ns, rank.busy_ns / whole
    return (
        Cell(name(rank).removeprefix("rank "), float(-1 if rank.rank is None else rank.rank)), time_cell(rank.step_ns),
        time_cell(rank.local_ns), Cell(f"{units.duration(exposed)} ({units.share(exposed / whole)})", exposed),
        time_cell(waited) if waited is not None else Cell("", -1.0), Cell(f"{last} calls" if last else "", last),
        Cell(units.share(busy), busy), Cell(" ".join((rank.bound, *rank.codes[:3]))), Cell(rank.source),
    )  # fmt: skip


def name(rank: RankSummary | Waiting) -> str:
    """'rank 2', or the end of its file's name."""
    return f"rank {rank.rank}" if rank.rank is not None else rank.source[-24:]


def waits(job: Job) -> dict[str, float]:
    """Return by file the ns per step of waiting for later ranks, with no other work beside it."""
    return sums((one.source, one.exposed_waiting_ns) for group in job.groups for one in group.waits)


def of_forecast(found: Forecast) -> Groups:
    """Return the step on more ranks as blocks: the conclusion, a row for each number of ranks, what it is made from."""
    seen, network = found.seen, found.network
    heads = ("ranks", "step", "95 %", "work of", "transfer", "sends, waits", "slowest later by")
    rows = tuple(
        (
            Cell(str(each.ranks), each.ranks), time_cell(each.step_ns), Cell(units.interval(each.low_ns, each.high_ns)),
            Cell(f"{each.speedup:.1f}", each.speedup), time_cell(each.transfer_ns), time_cell(each.exposed_ns),
            time_cell(each.slowest_ns),
        )
        for each in found.points
    )  # fmt: skip
    sent = sum(each.calls * each.size for each in seen.plan)
    calls = sum(each.calls for each in seen.plan)
    of = f"{units.several('rank', seen.ranks)}, {units.several('step', seen.steps)}"
    own = f"{of}: {units.duration(seen.step_ns)} a step, {units.duration(seen.own_ns)} of it own time"
    sends = f"{calls:.3g} collectives of {units.size(sent)} in all a step ({seen.how})" if seen.plan else ""
    link = f"{units.byte_rate(network.rate)} and {units.duration(network.latency_ns)} a message ({network.source})"
    last = found.points[-1]
    work = f"{last.ranks} ranks would do the work of {last.speedup:.1f}: a step of {units.duration(last.step_ns)}"
    line = f"{work} ({units.interval(last.low_ns, last.high_ns)}), by a model."
    return [
        [Sentence((((line, "bold"),),))],
        [Table("", tuple((name, True) for name in heads), rows)],
        facts([("seen", [own]), ("sends", [sends] if sends else []), ("network", [link]),
               ("model", [MODEL]), ("doubts", list(found.doubts))]),
    ]  # fmt: skip
