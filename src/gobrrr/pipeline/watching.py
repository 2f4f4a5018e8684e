"""A run while it runs: its folder looked at again and again, and nothing but read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gobrrr.errors import GobrrrError
from gobrrr.machine.probe import system_probe
from gobrrr.pipeline import redaction
from gobrrr.pipeline.file_names import REPORT
from gobrrr.recording.live import now
from gobrrr.recording.live.live_state import LoopSoFar, Watched
from gobrrr.recording.live.now import DeviceNow, Now, Part, Process
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.phases import NAMES
from gobrrr.recording.model.warmup import median
from gobrrr.recording.run_folder.gauges_file import Gauges, newest
from gobrrr.rules.model.cores import CROWDED, STARVED, without_core
from gobrrr.system import processes
from gobrrr.system.escape import cleaned_command
from gobrrr.system.processes import Process as Here
from gobrrr.units import share

AT_ONCE = 16 << 20
"""Bytes of a journal that one look takes in: half a second's work."""
MOST_PROCESSES = 512
"""Processes that are read; more are counted."""
_SEEN = re.compile(r"seen-(\d{1,9})\.json")
_TIME = re.compile(r"-\d{8}-\d{6}(-\d+)?$")
FRESH_S = 1.0
"""A process that is younger than its own note by more than this is another one, of the same number."""


def running(home: Path) -> Path:
    """The newest folder below `home` whose program runs. Raises GobrrrError where there is none."""
    runs = [run for run in home.iterdir() if run.is_dir()] if home.is_dir() else []
    for run in sorted(runs, key=lambda run: run.stat().st_mtime_ns, reverse=True):
        if any(_is_there(run, pid) for pid in _pids(run)):
            return run
    raise GobrrrError(f"gobrrr watches no running program in {home}",
                      "start one in another terminal: gobrrr run script.py; "
                      "to see one that has ended: gobrrr report")  # fmt: skip


def folder_of(path: Path) -> Path:
    """The run that `path` means: itself, or the newest in it that runs. Raises GobrrrError where it is none."""
    if not path.exists():
        raise GobrrrError(f"{path}: there is no such folder", "name the folder of a run: gobrrr top .gobrrr/NAME")
    if not path.is_dir():
        raise GobrrrError(f"{path} is no folder", f"name the folder of a run: gobrrr top {path.parent}")
    if _journals(path) or _pids(path) or (path / ".claim").exists():
        return path
    if any(child.is_dir() and _pids(child) for child in path.iterdir()):
        return running(path)
    raise GobrrrError(
        f"{path} holds no recording", "name a folder that gobrrr run writes into: gobrrr top .gobrrr/NAME"
    )


class Watching:
    """One run's folder. `look()` reads what is new, `now()` says what is known."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, proc: str = processes.PROC) -> None:
        self.folder = folder
        self._clock, self._proc = clock, proc
        self._watched: dict[str, Watched] = {}
        self._gone: set[str] = set()
        self._met: set[str] = set()
        self._cores, self._boot_ns = system_probe.usable_cores(), time.time_ns() - time.perf_counter_ns()
        self._program = ""

    @property
    def behind(self) -> bool:
        """Say whether more is there to be read at once."""
        return any(watched.journal.behind for watched in self._watched.values())

    def look(self) -> None:
        """Read what was written since. Raises GobrrrError where the folder is gone, or holds what is no journal."""
        if not self.folder.is_dir():
            raise GobrrrError(
                f"{self.folder} is gone",
                "if the program still runs, it goes on without a recording: start it again to watch it",
            )
        for path in _journals(self.folder)[:MOST_PROCESSES]:
            watched = self._watched.setdefault(path.name, Watched(path))
            try:
                watched.look(AT_ONCE // max(1, len(self._watched)))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise GobrrrError(f"cannot read {path}: {error.strerror}", "check its permissions") from None
            if watched.journal.damage and not watched.journal.share:
                raise GobrrrError(f"{path} is no journal that this gobrrr reads: {watched.journal.damage}",
                                  "watch it with the gobrrr that runs the program")  # fmt: skip
        self._gone = {name for name in self._watched if not (self.folder / name).exists()}

    def now(self) -> Now:
        """Return the figures of this moment."""
        told = [self._told(name, watched) for name, watched in self._watched.items()]
        told = sorted(told, key=lambda one: (one.rank or 0, -one.steps)) or self._waiting()
        order = (now.RUNNING, now.WAITING, now.ELSEWHERE, now.CUT)
        over = now.ENDED if told or _pids(self.folder) else now.WAITING
        state = next((state for state in order if any(one.state == state for one in told)), over)
        shares = [watched.journal.share for watched in self._watched.values() if watched.journal.behind]
        found = newest(self.folder) if state in (now.RUNNING, now.WAITING) else None
        return Now(
            str(self.folder), self._name(told), state, min(shares, default=1.0), tuple(told),
            max(0, len(_journals(self.folder)) - MOST_PROCESSES), self._next(state),
            devices=_devices(found[0]) if found else (),
            devices_ns=max(0, int(1e9 * (self._clock() - found[1]))) if found else None,
        )  # fmt: skip

    def _told(self, name: str, watched: Watched) -> Process:
        here = processes.find(watched.start.pid, self._proc)
        if here is not None and not _is_same(here, watched.start.began, watched.start.clock[0] / 1e9):
            here = None
        around = Surroundings(
            self._clock(), self._boot_ns, self._cores, processes.can_tell(self._proc), len(self._watched) == 1,
            name in self._met,
        )  # fmt: skip
        if here is not None:
            self._met.add(name)
        told = now_of(watched, here, around)
        if name in self._gone:
            return _doubting(told, "its journal is gone: nothing new is known")
        return told

    def _waiting(self) -> list[Process]:
        """Processes that have made no step yet."""
        found = (
            processes.find(pid, self._proc)
            for pid in sorted(_pids(self.folder))
            if _is_there(self.folder, pid, self._proc)
        )
        return [Process(one.pid, ran_ns=max(0, int(1e9 * (self._clock() - one.began_s))), rss_bytes=one.rss_bytes)
                for one in found if one is not None]  # fmt: skip

    def _name(self, told: list[Process]) -> str:
        """The command, as long as its process is there, without what looks like a secret; else what the folder says."""
        if not self._program and told and told[0].state in (now.RUNNING, now.WAITING):
            self._program = cleaned_command(redaction.shown(processes.command(told[0].pid, self._proc)[1:]))
        return self._program or _TIME.sub("", self.folder.resolve().name)

    def _next(self, state: str) -> str:
        """Return the command to type next."""
        report = f"gobrrr report {self.folder}"
        if state in (now.RUNNING, now.WAITING, now.ELSEWHERE):
            return f"{report} when it has ended"
        return report if (self.folder / REPORT).is_file() else f"{report} as soon as gobrrr run has judged it"


def _devices(found: Gauges) -> tuple[DeviceNow, ...]:
    return tuple(
        DeviceNow(device.name, read.busy, read.watts, device.limit_w, read.clock_mhz, read.celsius, read.used,
                  device.memory_bytes)
        for device, read in zip(found.head.devices, found.samples[0].devices, strict=True)
    )  # fmt: skip


def _doubting(told: Process, doubt: str) -> Process:
    import msgspec

    return msgspec.structs.replace(told, doubts=(*told.doubts, doubt))


def _journals(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank*.journal"))


def _pids(folder: Path) -> list[int]:
    """Processes that were reached, by their notes."""
    return [int(found[1]) for path in folder.glob("seen-*.json") if (found := _SEEN.fullmatch(path.name))]


def _is_there(folder: Path, pid: int, proc: str = processes.PROC) -> bool:
    """Say whether the process that left this note still runs."""
    try:
        noted = (folder / f"seen-{pid}.json").stat().st_mtime
    except OSError:
        return False
    here = processes.find(pid, proc)
    return here is not None and _is_same(here, None, noted)


def _is_same(here: processes.Process, began: int | None, noted_s: float) -> bool:
    """Say whether this process is the one that wrote: by its start, or since it is older than what it wrote."""
    return here.began == began if began is not None else here.began_s <= noted_s + FRESH_S


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
        kind=event_kinds.loop_name(loop.kind) if main else "",
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
        found.append(f"CPU contention: threads waited for a core {share(starved)} of the time")
    elif around.alone and _without_workers(watched) and others is not None and others > CROWDED * cores:
        found.append(f"CPU contention: others keep {others:.1f} of its {cores} cores busy")
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
