"""Many ranks, each reduced to a few figures: who waits for whom, who is late, and by what.

In synchronous training all ranks make the same step, so its length names nobody. What a rank does outside of exposed
communication is its own: the rank with most of it is late, and waits least.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from gobrrr import units
from gobrrr.ledger.job.blame import LineTime, Work, blame, lines_of, told
from gobrrr.ledger.job.calls import Calls
from gobrrr.ledger.job.culprits import ALWAYS, AT_TIMES, LATE, Culprit, Shared, is_enough, shared
from gobrrr.ledger.job.lateness import Group, Told, lateness, linked
from gobrrr.ledger.job.own_steps import OwnSteps
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.ledger.model.sums import sums
from gobrrr.recording.model.facts import RankFacts, Span
from gobrrr.recording.model.phases import NAMES

OF_THE_DEVICE = ("compute", "bandwidth", "inefficiency", "uncounted")
MAIN = 0.2
"""Part of what communication takes from which a late rank is the headline: it can be cured (proposed)."""
FEWEST_BATCHES = 3
"""Different batches that ranks must have in common to be said to train on the same ones (proposed)."""
MOST_RANKS = 1 << 20
"""Most ranks of a job: more is no number of ranks."""
APART = 60e9
"""ns between files of ranks after which they are of different runs: clocks of hosts differ by less (proposed)."""


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; times are ns per step."""

    source: str
    rank: int | None = None
    world_size: int | None = None
    num_steps: int = 0
    step_ns: float = 0.0
    busy_ns: float = 0.0
    exposed_communication_ns: float = 0.0
    waited_ns: float = 0.0
    """Part of the exposed time that is of collectives which threads of the host carry, as gloo's: no kernels."""
    communication_ns: float = 0.0
    accounts: tuple[tuple[str, float], ...] = ()
    verdict: str = ""
    bound: str = ""
    codes: tuple[str, ...] = ()
    device: str = ""
    within_a_host: bool = False
    """All ranks fit in the devices of this one's host."""
    calls: Calls | None = None
    """Its collectives, call by call; null once they are held against those of the others. `steps` and `lines` are
    gone then, too."""
    steps: OwnSteps | None = None
    lines: tuple[LineTime, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    """Own time by phase, without waiting for other ranks, in the steps that all ranks made; empty of a trace."""
    flops: float = 0.0
    """FLOPs of its ops in a step."""
    threads_ns: float = 0.0
    """CPU time of its threads beside the one that trains."""
    between: tuple[Span, ...] = ()
    """Lines that make the forwards of other loops between its steps, an evaluation's, the longest first."""
    model: Span | None = None
    """The user's line that calls the largest model."""
    batches: tuple[int, ...] = ()
    """Checksums of its first batches, where all ranks sum the gradients of one model; empty of a trace."""
    span: tuple[int, int] | None = None
    """First and last event, in ns since the epoch; null where the file does not say when it was."""
    error: str = ""
    """Why this one could not be read; then all else is empty."""

    @property
    def local_ns(self) -> float:
        """Return the step in ns if nobody had to be waited for."""
        return max(0.0, self.step_ns - self.exposed_communication_ns)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Report of all ranks together."""

    schema: str = "gobrrr.job/1"
    verdict: str = ""
    bound: str = "balanced"
    slowest: int | None = None
    """The rank that is late, null where none is."""
    because: str = ""
    """The account in which it differs most from the median rank."""
    late_ns: float = 0.0
    """Most that the job would gain, ns, if the slowest were median."""
    imbalance: float = 0.0
    """Largest local time over the mean, minus one."""
    exposed_share: float = 0.0
    """Exposed share of the step, median over ranks."""
    live: bool = False
    """The ranks were watched as they ran; they are no traces."""
    ended: str = ""
    """Which rank ended first, in a sentence; empty where none failed. `endings`: each rank's, where one did."""
    endings: tuple[str, ...] = ()
    same_batches: bool = False
    """All ranks get the same batches from their loaders: all but one do what another does."""
    blames: tuple[Culprit, ...] = ()
    """Ranks that the others wait for, the dearest first; empty of traces, whose steps are few."""
    shared: Shared | None = None
    """Steps that all ranks made and watched; null of traces, and where an accelerator works."""
    alone_ns: float | None = None
    """Mean step of one rank by itself; null where nobody measured it."""
    doubts: tuple[str, ...] = ()
    """Doubts about all figures, as cores that others took."""
    causes: tuple[tuple[str, float], ...] = ()
    """Findings about communication in the ranks' reports, and ns per step that a fix saves; empty of traces."""
    exposed: str = ""
    """The same in words, split into waiting and transfer, and who came last."""
    missing: tuple[int, ...] = ()
    """Ranks of the world that are not there."""
    doubled: tuple[int, ...] = ()
    ranks: tuple[RankSummary, ...] = ()
    groups: tuple[Group, ...] = ()
    """Process groups, with waiting and transfer apart; empty where no collective is in two of the files."""


def summary(
    ledger: Ledger, source: str, rank: int | None, world_size: int | None, calls: Calls | None = None,
    span: tuple[int, int] | None = None,
) -> RankSummary:  # fmt: skip
    """Summarise one rank's ledger."""
    device = ledger.device
    communication = sum(ns for _, _, ns, kind in device.kernels if kind == "communication") if device else 0.0
    waited = dict(device.idle_by_cause).get("communication", 0.0) if device else 0.0
    shown = device.exposed_communication_ns + waited if device else ledger.account("communication")
    return RankSummary(
        source=source, rank=rank, world_size=world_size, num_steps=ledger.step.count, step_ns=ledger.wall,
        busy_ns=device.busy_ns if device else 0.0, exposed_communication_ns=shown, waited_ns=waited,
        communication_ns=communication, lines=lines_of(ledger), flops=ledger.roofline.flops,
        batches=_batches(ledger.facts.ranks),
        between=tuple(loop.where for loop in sorted(ledger.loops, key=lambda loop: -loop.between)
                      if loop.where is not None and loop.between > 0),
        model=next((m.span for m in sorted(ledger.facts.modules, key=lambda m: -m.num_params) if m.span), None),
        accounts=_accounts(ledger), device=device.name if device else "", calls=calls,
        within_a_host=device.within_a_host if device else False, span=span,
    )  # fmt: skip


def _accounts(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    """Return the accounts, with the device's own work as one: its own report says by what it is bound."""
    if ledger.device is None:
        return tuple((a.account, a.ns) for a in ledger.accounts)
    works = sum(a.ns for a in ledger.accounts if a.account in OF_THE_DEVICE)
    return (("device work", works), *((a.account, a.ns) for a in ledger.accounts if a.account not in OF_THE_DEVICE))


def together(ranks: Sequence[RankSummary]) -> Job:
    """The job of the ranks that could be read."""
    read = sorted(
        (r for r in ranks if not r.error), key=lambda r: (r.rank if r.rank is not None else 1 << 30, r.source)
    )
    if not read:
        return Job(verdict="Unreliable: no rank could be read.", bound="unreliable", ranks=tuple(ranks))
    numbers = [r.rank for r in read if r.rank is not None]
    world = max((r.world_size or 0 for r in read), default=0)
    missing = tuple(sorted(set(range(min(world, MOST_RANKS))) - set(numbers))) if numbers else ()
    doubled = tuple(sorted({n for n in numbers if numbers.count(n) > 1}))
    unread = tuple(r for r in ranks if r.error)
    told = [_told(r) for r in read]
    groups = () if doubled else tuple(linked(group, told) for group in lateness(told, world))
    untold = Job(
        verdict="", bound="unreliable", missing=missing, doubled=doubled, ranks=(*_without_calls(read, groups), *unread)
    )
    if len(read) == 1:
        alone = f"Only one of {len(ranks)} files could be read: {read[0].verdict}"
        return msgspec.structs.replace(untold, verdict=alone, bound=read[0].bound)
    if unclear := _unclear(read, world, doubled):
        return msgspec.structs.replace(untold, verdict=f"Unreliable: {unclear}.")
    watched = [r for r in read if r.steps is not None and is_enough(r.steps)] if numbers else []
    steps = shared([r.steps for r in watched if r.steps is not None])
    if steps is not None:
        return _of_steps(msgspec.structs.replace(untold, groups=groups), watched, *steps)
    step = median(r.step_ns for r in read)
    local = [r.local_ns for r in read]
    usual, worst = median(local), max(read, key=lambda r: r.local_ns)
    late = worst.local_ns - usual
    shares = median(r.exposed_communication_ns / r.step_ns if r.step_ns else 0.0 for r in read)
    is_late = late > LATE * step
    because = _because(worst, read) if is_late else ""
    bound = "straggler" if is_late else "communication" if shares > LATE else "balanced"
    exposed = _exposed(shares, step, groups) + (_last(groups, worst) if is_late else "")
    return msgspec.structs.replace(
        untold, verdict=_sentence(bound, worst, late, step, because, shares, len(read), any(r.steps for r in read)),
        bound=bound, exposed=exposed,
        slowest=worst.rank if is_late else None, because=because, late_ns=late if is_late else 0.0,
        imbalance=worst.local_ns * len(local) / sum(local) - 1 if sum(local) else 0.0, exposed_share=shares,
        groups=groups,
    )  # fmt: skip


def _of_steps(untold: Job, read: Sequence[RankSummary], steps: Shared, culprits: Sequence[Culprit]) -> Job:
    """The job by the steps that these ranks made: who is waited for step by step, not on average."""
    numbers = [r.rank or 0 for r in read]
    work = [Work(r.flops, r.threads_ns) for r in read]
    blames = tuple(blame(each, numbers, [r.lines for r in read], work) for each in culprits)
    known = {r.source: (sum(phases), phases) for r, phases in zip(read, steps.phases, strict=True)}
    ranks = tuple(
        r if r.source not in known else msgspec.structs.replace(
            r, step_ns=steps.step_ns, phases=tuple(zip(NAMES, known[r.source][1], strict=True)),
            exposed_communication_ns=max(0.0, steps.step_ns - known[r.source][0]),
        )
        for r in untold.ranks
    )  # fmt: skip
    exposed = 1 - steps.own_ns / steps.step_ns if steps.step_ns else 0.0
    moving = steps.communication_ns / steps.step_ns if steps.step_ns else 0.0
    first, bound = next(iter(blames), None), "communication" if moving > LATE else "balanced"
    uneven = steps.imbalance_ns > LATE * steps.step_ns
    if first is not None and first.cost_ns >= MAIN * steps.communication_ns:
        bound, verdict = "straggler" if first.when in (ALWAYS, AT_TIMES) else "uneven", told(first, steps.step_ns)
    else:
        label = "Communication-bound" if moving > LATE else f"Balanced over {len(read)} ranks"
        verdict = f"{label}: communication takes {units.share(moving)} of the {units.duration(steps.step_ns)} step"
        verdict += "." if first is not None or uneven else f"; no rank is late by {units.share(LATE)} of it."
    same = _are_the_same([r.batches for r in read])
    if same:
        bound = "redundant"
        verdict = f"Redundant: all {len(read)} ranks train on the same batches. Give the loader a DistributedSampler."
    longest = max(sum(phases) for phases in steps.phases)
    mean = sum(map(sum, steps.phases)) / len(read)
    return msgspec.structs.replace(
        untold, verdict=verdict, bound=bound, same_batches=same, blames=blames, shared=steps, ranks=ranks,
        exposed_share=exposed,
        slowest=first.ranks[0] if first is not None and bound == "straggler" else None,
        because=first.phase if first is not None else "", late_ns=first.cost_ns if first is not None else 0.0,
        imbalance=longest / mean - 1 if mean else 0.0,
    )  # fmt: skip


def _batches(facts: RankFacts | None) -> tuple[int, ...]:
    """The checksums; of ranks that share a model's parts, which get the same batches by design, none."""
    alike = facts is not None and any(wrapper.ranks == facts.world_size for wrapper in facts.wrappers)
    return facts.batches if facts is not None and alike else ()


def _are_the_same(ranks: Sequence[Sequence[int]]) -> bool:
    """Say whether all ranks have these checksums in common, in order, and they are no constant."""
    num = min(map(len, ranks), default=0)
    first = tuple(ranks[0][:num]) if num else ()
    return len(set(first)) >= FEWEST_BATCHES and all(tuple(each[:num]) == first for each in ranks)


def _told(rank: RankSummary) -> Told:
    """Return the rank's calls and what a recorded ns of its collectives is in its plain step."""
    calls = rank.calls or Calls()
    return Told(
        rank.rank, rank.source, calls, rank.communication_ns / calls.ns if calls.ns else 1.0,
        (rank.exposed_communication_ns - rank.waited_ns) / calls.bare_ns if calls.bare_ns else 1.0, rank.device,
        rank.within_a_host,
    )  # fmt: skip


def _without_calls(read: Sequence[RankSummary], groups: Sequence[Group]) -> list[RankSummary]:
    """As they are told on. A rank by itself takes the waiting in its fastest call for transfer: it may call a link slow
    that the transfer alone acquits."""
    acquitted = any(group.fits for group in groups) and not any(group.slow for group in groups)
    gone = ("BRR702",) if acquitted else ()
    return [
        msgspec.structs.replace(
            r, calls=None, steps=None, batches=(), lines=(), codes=tuple(c for c in r.codes if c not in gone)
        )
        for r in read
    ]


def _exposed(shares: float, step: float, groups: Sequence[Group]) -> str:
    """Describe the exposed time of the median rank, split into waiting and transfer."""
    said = f"{units.share(shares)} of the {units.duration(step)} step on the median rank"
    waits = [one for group in groups for one in group.waits]
    waiting = sums((one.source, one.exposed_waiting_ns) for one in waits)
    moving = sums((one.source, one.exposed_transfer_ns) for one in waits)
    if not waiting:
        return said
    waited = units.duration(median(waiting.values()))
    if any(group.partial for group in groups):
        return f"{said} (at least {waited} of it waiting: not all ranks' files are here)"
    return f"{said} ({waited} of it waiting for the latest rank, {units.duration(median(moving.values()))} transfer)"


def _unclear(read: Sequence[RankSummary], world: int, doubled: Sequence[int]) -> str:
    """Why these are not the ranks of one job; empty where nothing speaks against it."""
    numbers = [r.rank for r in read if r.rank is not None]
    sizes = sorted({r.world_size for r in read if r.world_size is not None})
    if len(sizes) > 1:
        return f"the files are of jobs of {' and '.join(map(str, sizes))} ranks; diagnose one job at a time"
    if doubled:
        of = f" of {world}" if world else ""
        return (
            f"{numbers.count(doubled[0])} files say that they are rank {doubled[0]}{of}: copies, or several recordings "
            "of one rank; give one file per rank"
        )
    if numbers and len(numbers) < len(read):
        other = next(r.source for r in read if r.rank is None)
        return f"{len(read) - len(numbers)} of {len(read)} files do not say which rank they are ({other})"
    if not numbers and not any(r.communication_ns + r.waited_ns for r in read):
        return (
            "the files do not say that they are ranks, and none of them communicates; give one at a time, or hold two "
            "against each other: gobrrr compare A B"
        )
    if world > MOST_RANKS:
        return f"a file says that it is of a job of {world} ranks"
    spans = [r.span for r in read if r.span is not None]
    if spans and (between := max(begin for begin, _ in spans) - min(end for _, end in spans)) > APART:
        return f"some files end {units.duration(between)} before others begin; give the files of one run"
    if world and max(numbers, default=0) >= world:
        return f"a file says that it is rank {max(numbers)} of {world}; give the files of one job"
    return ""


def _because(worst: RankSummary, ranks: Sequence[RankSummary]) -> str:
    """The account in which the late rank exceeds the median of all most."""
    names = {name for r in ranks for name, _ in r.accounts if name != "communication"}
    usual = {name: median(dict(r.accounts).get(name, 0.0) for r in ranks) for name in sorted(names)}
    own = dict(worst.accounts)
    return max(usual, key=lambda name: own.get(name, 0.0) - usual[name], default="")


def _last(groups: Sequence[Group], late: RankSummary) -> str:
    """Name the rank that came last to collectives by most, if it is not the one with most work of its own."""
    waits = [one for group in groups for one in group.waits]
    behind, who = sums((one.source, one.late_ns) for one in waits), {one.source: one.rank for one in waits}
    most = max(behind, key=lambda source: behind[source], default="")
    if not behind.get(most) or most == late.source:
        return ""
    name = f"rank {who[most]}" if who[most] is not None else most
    return f"; yet {name} came last to collectives by most, {units.duration(behind[most])} per step"


def _sentence(
    bound: str, worst: RankSummary, late: float, step: float, because: str, shares: float, count: int, live: bool
) -> str:  # fmt: skip
    """Say it in at most 25 words. `live`: few of the steps were profiled, so that nobody is absolved."""
    if bound == "straggler":
        who = f"rank {worst.rank}" if worst.rank is not None else worst.source
        return (
            f"Straggler: {who} works {units.duration(late)} ({units.share(late / step if step else 0)}) longer per "
            f"step than the median of {count} ranks, most of it in {because.replace('_', ' ')}."
        )
    label = "Communication-bound" if bound == "communication" else f"Balanced over {count} ranks"
    exposed = f"exposed communication takes {units.share(shares)} of the {units.duration(step)} step"
    return f"{label}: {exposed}{'' if live else f'; no rank is late by {units.share(LATE)} of it'}."
