"""A look at a program, made of what was seen of it from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from gobrrr.machine.probe import system_probe
from gobrrr.recording.live.outside import Seen
from gobrrr.rules.outside import kinds, verdict
from gobrrr.rules.outside.look import PROGRAM, Look, Process
from gobrrr.rules.verdict.place import reader
from gobrrr.system.escape import cleaned_command
from gobrrr.system.process_tree import Reading
from gobrrr.system.secrets import masked

LEAST_S = 1.0
"""Seconds between two readings from which a rate is told."""


def look(seen: Seen) -> Look:
    """All of it, with the verdict."""
    processes, every = tuple(_process(pid, seen) for pid in seen.samples), list(seen.readings.values())
    main = next((each.pid for each in processes if each.role == PROGRAM), seen.root)
    cores, command = system_probe.usable_cores(), seen.facts.get(seen.root, {}).get("cmdline", ())
    resident: Counter[float] = Counter()
    for reading in (reading for each in every for reading in each):
        resident[reading.at] += reading.rss_bytes
    first, last = (min(resident), max(resident)) if resident else (0.0, 0.0)
    found = Look(
        seen.root, cleaned_command(masked(command)) or "a program whose command cannot be read", seen.seconds,
        processes, seen.ended, tuple(error.message for error in seen.failed), seen.more,
        min(len(seen.facts.get(main, {}).get("cpu_affinity", range(cores))), cores),
        busy_cores=_rate(every, lambda reading: reading.cpu_s),
        rss_bytes=resident[last],
        rss_growth=(resident[last] - resident[first]) / (last - first) if last - first >= LEAST_S else None,
        threads=sum(each[-1].threads for each in every),
        switches=_rate(every, lambda reading: reading.switches),
        forced_switches=_rate(every, lambda reading: reading.forced),
        read_rate=_rate(every, lambda reading: reading.read_bytes),
        next=_next(command),
    )  # fmt: skip
    return replace(found, verdict=verdict.verdict(found), unknown=verdict.unknown(found))


def _process(pid: int, seen: Seen) -> Process:
    facts, own = seen.facts.get(pid, {}), [seen.readings.get(pid, [])]
    rank = facts.get("environ", {}).get("RANK", "")
    awake, queued = _rate(own, lambda reading: reading.awake_ns), _rate(own, lambda reading: reading.queued_ns)
    return replace(
        kinds.process(pid, seen.samples[pid], reader(facts.get("cwd", "/"), anywhere=True)),
        rank=int(rank) if rank.isdecimal() and len(rank) < 7 else None,
        awake=awake / 1e9 if awake is not None else None, queued=queued / 1e9 if queued is not None else None,
        busy_cores=_rate(own, lambda reading: reading.cpu_s),
    )  # fmt: skip


def _rate(every: Iterable[Sequence[Reading]], figure: Callable[[Reading], float | None]) -> float | None:
    """The use of all of them in a second, of those that were there long enough."""
    found = []
    for each in every:
        known = [(reading.at, value) for reading in each if (value := figure(reading)) is not None]
        if known and (passed := known[-1][0] - known[0][0]) >= LEAST_S:
            found.append((known[-1][1] - known[0][1]) / passed)
    return sum(found) if found else None


def _next(command: Sequence[str]) -> str:
    """The command that sees what cannot be seen from outside: a script's as it is, any other one's behind --."""
    if len(command) > 1 and PurePath(command[0]).name.startswith("python") and command[1][:1]:
        if command[1].endswith(".py") or command[1] == "-m":
            return f"gobrrr run {cleaned_command(masked(command[1:]))}"
        if not command[1].startswith("-"):  # of a console script the name is enough
            command = [PurePath(command[1]).name, *command[2:]]
    return f"gobrrr run -- {cleaned_command(masked(command))}" if command else "gobrrr run script.py"
