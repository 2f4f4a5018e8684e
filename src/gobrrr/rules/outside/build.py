"""A look at a program, made of what was seen of it from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from gobrrr.machine.probe import system_probe
from gobrrr.recording.live.outside import Seen
from gobrrr.rules.outside import kinds, verdict
from gobrrr.rules.outside.look import PROGRAM, Look, Process
from gobrrr.rules.verdict.place import reader
from gobrrr.system.escape import cleaned_command
from gobrrr.system.process_tree import Facts, Reading
from gobrrr.system.secrets import masked

Timed = Sequence[tuple[float, Reading]]
LEAST_S = 1.0
"""Seconds between two readings from which a rate is told."""


def look(seen: Seen) -> Look:
    """All of it, with the verdict."""
    processes = tuple(_process(pid, seen) for pid in seen.samples)
    main = next((each.pid for each in processes if each.role == PROGRAM), seen.root)
    facts = seen.facts.get(main, Facts())
    every = list(seen.readings.values())
    totals = _totals(every)
    found = Look(
        seen.root, _command(seen.facts.get(seen.root, Facts())), seen.seconds, processes, seen.more, seen.ended,
        tuple(error.message for error in seen.failed), any(each.drives for each in seen.facts.values()),
        min(facts.cores or system_probe.usable_cores(), system_probe.usable_cores()),
        busy_cores=_rate(every, lambda reading: reading.cpu_s),
        rss_bytes=totals[-1][1] if totals else None,
        rss_growth=_growth(totals),
        threads=sum(each[-1][1].threads for each in every) if every else None,
        switches=_rate(every, lambda reading: reading.switches[0]),
        forced_switches=_rate(every, lambda reading: reading.switches[1]),
        read_rate=_rate(every, lambda reading: reading.read_bytes),
        next=_next(facts, seen.facts.get(seen.root, Facts())),
    )  # fmt: skip
    return replace(found, verdict=verdict.verdict(found), unknown=verdict.unknown(found))


def _process(pid: int, seen: Seen) -> Process:
    facts, own = seen.facts.get(pid, Facts()), [seen.readings.get(pid, [])]
    rank = facts.environ.get("RANK", "")
    found = kinds.process(pid, seen.samples[pid], reader(facts.folder or "/", anywhere=True))
    awake = _rate(own, lambda reading: reading.awake_ns)
    queued = _rate(own, lambda reading: reading.queued_ns)
    return replace(
        found, rank=int(rank) if rank.isdecimal() and len(rank) < 7 else None,
        awake=awake / 1e9 if awake is not None else None, queued=queued / 1e9 if queued is not None else None,
        busy_cores=_rate(own, lambda reading: reading.cpu_s), rss_bytes=own[0][-1][1].rss_bytes if own[0] else None,
    )  # fmt: skip


def _rate(every: Iterable[Timed], figure: Callable[[Reading], float | None]) -> float | None:
    """What all of them use in a second, of those that were there long enough."""
    found = []
    for each in every:
        if len(each) > 1 and (passed := each[-1][0] - each[0][0]) >= LEAST_S:
            first, last = figure(each[0][1]), figure(each[-1][1])
            found += [(last - first) / passed] if first is not None and last is not None else []
    return sum(found) if found else None


def _totals(every: Sequence[Timed]) -> list[tuple[float, int]]:
    """Resident bytes of all processes at each time."""
    sums: dict[float, int] = {}
    for each in every:
        for at, reading in each:
            sums[at] = sums.get(at, 0) + reading.rss_bytes
    return sorted(sums.items())


def _growth(totals: Sequence[tuple[float, int]]) -> float | None:
    passed = totals[-1][0] - totals[0][0] if totals else 0.0
    return (totals[-1][1] - totals[0][1]) / passed if passed >= LEAST_S else None


def _command(facts: Facts) -> str:
    return cleaned_command(masked(facts.command)) or "a program whose command cannot be read"


def _next(facts: Facts, root: Facts) -> str:
    """The command that sees what cannot be seen from outside: a script's as it is, any other one's behind --."""
    words = list(root.command or facts.command)
    python = bool(words) and PurePath(words[0]).name.startswith("python")
    rest = words[1:] if python else words
    if not rest:
        return "gobrrr run script.py"
    script = rest[0].endswith(".py") or rest[0] == "-m"
    if python and not script:  # of a console script the name is enough, where it is no option
        rest = words if rest[0].startswith("-") else [PurePath(rest[0]).name, *rest[1:]]
    return f"gobrrr run {'' if python and script else '-- '}{cleaned_command(masked(rest))}"
