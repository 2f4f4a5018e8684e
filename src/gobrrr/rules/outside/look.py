"""Facts of a look at a program from outside (schema gobrrr.attach/1): rates are per second, sizes bytes, loads cores;
None is not known."""

from __future__ import annotations

import msgspec

from gobrrr.recording.model.facts import Span

DATA, FETCH, RECEIVE, COLLATE = "data", "fetch", "receive", "collate"
DEVICE, RANKS, SAVING, COMPILE, IMPORTS = "device", "ranks", "saving", "compile", "imports"
LOADING = "loading"
FORWARD, BACKWARD, OPTIMIZER, WAITS, OTHER = "forward", "backward", "optimizer", "waits", "other"
TRAINS = frozenset({DATA, FETCH, RECEIVE, FORWARD, BACKWARD, OPTIMIZER})
"""Kinds that only a thread has which trains."""
ASLEEP = frozenset({DATA, FETCH, RECEIVE, DEVICE, RANKS, SAVING, LOADING, WAITS})
"""Kinds in which a thread that sleeps is no surprise."""
PROGRAM, WORKER, LAUNCHER, HELPER = "program", "loader worker", "launcher", "helper"


class Line(msgspec.Struct, frozen=True):
    """A line of the user's, None where none is on the stack, and the library's function that it calls there."""

    where: Span | None
    kind: str
    share: float
    calls: str = ""


class Process(msgspec.Struct, frozen=True):
    """One process. `kinds`: shares of the samples of the thread that trains, most first; `awake`, `queued`: share of
    the time that its main thread was on a processor, and wanted one."""

    pid: int
    role: str
    samples: int
    kinds: dict[str, float]
    lines: tuple[Line, ...]
    thread: int = 0
    rank: int | None = None
    awake: float | None = None
    queued: float | None = None
    busy_cores: float | None = None

    @property
    def slept(self) -> float:
        """Share of the time asleep in work that should not sleep: most likely a wait that has no frame."""
        if self.awake is None or self.thread != self.pid:
            return 0.0
        waits = sum(share for kind, share in self.kinds.items() if kind in ASLEEP)
        return max(0.0, 1 - self.awake - (self.queued or 0.0) - waits)


class Look(msgspec.Struct, frozen=True):
    """All processes that were sampled, and what they use together. `ended`: why the look ended early; `failed`: why
    nothing was seen of some; `more`: processes that were not sampled; switches are those of the main threads."""

    pid: int
    program: str
    seconds: float
    processes: tuple[Process, ...]
    ended: str = ""
    failed: tuple[str, ...] = ()
    more: int = 0
    cores: int = 1
    busy_cores: float | None = None
    rss_bytes: int = 0
    rss_growth: float | None = None
    threads: int = 0
    switches: float | None = None
    forced_switches: float | None = None
    read_rate: float | None = None
    verdict: str = ""
    unknown: tuple[str, ...] = ()
    """Facts that cannot be known from outside."""
    next: str = ""
    schema: str = "gobrrr.attach/1"
