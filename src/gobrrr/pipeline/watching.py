"""A run while it runs: its folder looked at again and again, and nothing but read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from gobrrr.errors import GobrrrError
from gobrrr.machine.probe import system_probe
from gobrrr.pipeline import redaction
from gobrrr.pipeline.file_names import REPORT
from gobrrr.pipeline.live_now import Surroundings, now_of
from gobrrr.recording.live import now
from gobrrr.recording.live.live_state import Watched
from gobrrr.recording.live.now import Now, Process
from gobrrr.system import processes
from gobrrr.system.escape import cleaned_command

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
    raise GobrrrError(f"{home}: no program runs here that gobrrr watches",
                      "start one elsewhere: gobrrr run script.py; of one that has ended: gobrrr report")  # fmt: skip


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
            raise GobrrrError(f"{self.folder} is gone", "a program that still runs goes on without its recording")
        for path in _journals(self.folder)[:MOST_PROCESSES]:
            watched = self._watched.setdefault(path.name, Watched(path))
            try:
                watched.look(AT_ONCE // max(1, len(self._watched)))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise GobrrrError(f"{path}: {error.strerror}", "is it yours to read?") from None
            if watched.journal.damage and not watched.journal.share:
                raise GobrrrError(f"{path} is no journal that this gobrrr reads: {watched.journal.damage}",
                                  "was it written by another version?")  # fmt: skip
        self._gone = {name for name in self._watched if not (self.folder / name).exists()}

    def now(self) -> Now:
        """Return the figures of this moment."""
        told = [self._told(name, watched) for name, watched in self._watched.items()]
        told = sorted(told, key=lambda one: (one.rank or 0, -one.steps)) or self._waiting()
        order = (now.RUNNING, now.WAITING, now.ELSEWHERE, now.CUT)
        over = now.ENDED if told or _pids(self.folder) else now.WAITING
        state = next((state for state in order if any(one.state == state for one in told)), over)
        shares = [watched.journal.share for watched in self._watched.values() if watched.journal.behind]
        return Now(
            str(self.folder), self._name(told), state, min(shares, default=1.0), tuple(told),
            max(0, len(_journals(self.folder)) - MOST_PROCESSES), self._next(state),
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
