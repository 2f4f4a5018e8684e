"""From what one journal has told to what is known of its process now."""

from __future__ import annotations

from typing import Any, NamedTuple

from gobrrr.recording.live import now
from gobrrr.recording.live.live_state import LoopSoFar, Watched
from gobrrr.recording.live.now import Part, Process
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.phases import NAMES
from gobrrr.recording.model.steps import LOOP_NAMES
from gobrrr.recording.model.warmup import median
from gobrrr.rules.model.cores import CROWDED, STARVED, without_core
from gobrrr.system.processes import Process as Here
from gobrrr.units import share

ALIVE_S, LAST_S = 30.0, 3.0
"""A process that cannot be seen from here may run as long as its journal was written so short a time ago: on another
machine, and on this one, where it may be in a container whose numbers are others."""
SAME_BOOT_NS = 10_000_000_000
"""ns that Unix time and the steady clock may drift apart while a machine runs on."""
UNTIL = {"watched enough": "gobrrr has seen enough and is gone from the program: steps since are not counted",
         "left early": "gobrrr ended the program when it had seen enough",
         "stop-after": "gobrrr ended the program as --stop-after had it"}  # fmt: skip


class Surroundings(NamedTuple):
    """Facts known here. `clock_s`: Unix seconds; `boot_ns`: Unix time when the steady clock began; `cores`: that a
    process may use; `tells`: whether this machine shows who runs on it; `alone`: one process is watched; `met`:
    it was seen to run before."""

    clock_s: float
    boot_ns: int
    cores: int
    tells: bool = True
    alone: bool = True
    met: bool = False


def now_of(watched: Watched, here: Here | None, around: Surroundings) -> Process:
    """`here`: the process, where it runs on this machine."""
    start, main = watched.start, watched.main
    loop = main or LoopSoFar()
    late_ns = median(loop.late) if loop.late else None
    vitals, step_ns = watched.vitals, loop.trend.median or 0.0
    own, others = _loads(watched)
    starved = without_core(own, others or 0.0, vitals.rate(event_kinds.WAITED), vitals.rate(event_kinds.STOLEN))
    split, num = watched.phases.split(loop.usual)
    rss, own_bytes, device = (vitals.sizes[kind] for kind in (event_kinds.RSS, event_kinds.OWN, event_kinds.DEVICE))
    growing = rss if own_bytes.last is None else own_bytes
    return Process(
        pid=start.pid,
        rank=start.rank,
        state=_state(watched, here, around),
        watching=_watching(watched),
        ran_ns=_ran(watched, here, around.clock_s),
        silent_ns=max(0, int(1e9 * (around.clock_s - watched.journal.modified_s))),
        kind=LOOP_NAMES.get(loop.kind, "steps") if main else "",
        steps=loop.num,
        late_steps=len(loop.late),
        late_ns=late_ns,
        median_ns=loop.trend.median,
        change=loop.trend.change,
        history_ns=loop.trend.history,
        samples_per_s=_rate(watched, loop, late_ns),
        split_steps=num,
        parts=_parts(split, num),
        device=start.device,
        rss_bytes=here.rss_bytes if here is not None else rss.last,
        rss_growth=growing.growth(step_ns) if step_ns else None,
        device_bytes=device.last,
        device_growth=device.growth(step_ns) if step_ns else None,
        busy_cores=own,
        other_cores=others,
        starved=starved,
        doubts=_doubts(watched, starved, others, around),
    )


def _state(watched: Watched, here: Here | None, around: Surroundings) -> str:
    if here is not None:
        return now.RUNNING
    if watched.ended not in (None, "watched enough"):
        return now.ENDED
    unix, steady = watched.start.clock
    known = around.tells and abs(unix - steady - around.boot_ns) < SAME_BOOT_NS
    if not around.met and around.clock_s - watched.journal.modified_s < (LAST_S if known else ALIVE_S):
        return now.ELSEWHERE
    return now.ENDED if watched.ended is not None else now.CUT


def _watching(watched: Watched) -> str:
    if watched.ended is not None or any(note.startswith("watching failed") for note in watched.notes):
        return now.OVER
    return now.LOOKING if watched.finder.window else now.RESTING if watched.finder.rests else now.WATCHED


def _ran(watched: Watched, here: Here | None, clock_s: float) -> int | None:
    """ns since it was started; of one that has ended, from its first step's time to the last thing that it wrote."""
    if here is not None:
        return max(0, int(1e9 * (clock_s - here.began_s)))
    ran = watched.last_ns - watched.start.clock[1]
    return ran if watched.started and ran > 0 else None


def _parts(split: dict[str, int | None], num: int) -> tuple[Part, ...]:
    total = sum(ns or 0 for ns in split.values())
    if not num or total <= 0:
        return ()
    return tuple(
        Part(name, None, None) if (ns := split[name]) is None else Part(name, ns / num, ns / total) for name in NAMES
    )


def _loaders(watched: Watched) -> list[dict[str, Any]] | None:
    """Return the facts noted of its loaders; None before any were."""
    found = watched.facts.get("loaders")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else None


def _rate(watched: Watched, loop: LoopSoFar, step_ns: float | None) -> float | None:
    """Samples a second: rows of a batch by the loader's word, times the batches of a usual step."""
    said = [each.get("batch_size") for each in _loaders(watched) or ()]
    sizes = {size if isinstance(size, int) else None for size in said}  # from a file: a list may stand there
    batches = watched.phases.batches(loop.usual)
    if len(sizes) != 1 or not step_ns or not batches:  # of several loaders nothing says here which is the step's
        return None
    size = sizes.pop()
    return size * batches * 1e9 / step_ns if isinstance(size, int) and 0 < size < 1 << 40 else None


def _loads(watched: Watched) -> tuple[float | None, float | None]:
    """Cores that the process and all others keep busy."""
    own, machine = watched.vitals.rate(event_kinds.CPU), watched.vitals.rate(event_kinds.BUSY)
    return own, max(0.0, machine - own) if own is not None and machine is not None else None


def _doubts(watched: Watched, starved: float | None, others: float | None, around: Surroundings) -> tuple[str, ...]:
    """Return the reasons that make these figures worth less, as BRR905 judges it afterwards."""
    found, cores = [], _cores(watched) or around.cores
    if starved is not None and starved > STARVED:
        found.append(f"the machine is shared: its threads had no core for {share(starved)} of the time they wanted one")
    elif around.alone and _without_workers(watched) and others is not None and others > CROWDED * cores:
        found.append(f"the machine is shared: others keep {others:.1f} of its {cores} cores busy")
    if watched.journal.damage:
        found.append(f"the recording cannot be read on: {watched.journal.damage}")
    found += [UNTIL[watched.ended]] if watched.ended in UNTIL else []
    return (*found, *watched.notes)


def _cores(watched: Watched) -> int | None:
    """Return the cores that the program may use, by its own word."""
    settings = watched.facts.get("settings")
    cores = settings.get("cores") if isinstance(settings, dict) else None
    return cores if isinstance(cores, int) and 0 < cores < 1 << 20 else None


def _without_workers(watched: Watched) -> bool:
    """Say whether it is known that no loader's workers are among the others."""
    loaders = _loaders(watched)
    return loaders is not None and not any(each.get("num_workers") for each in loaders)
