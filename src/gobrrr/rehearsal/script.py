"""The script of a rehearsal: which ops to time, as plain data for another process, and the timings that come back."""

from __future__ import annotations

from typing import Any

import msgspec

Side = dict[str, Any]
"""One side of a part: {"make": a maker of rehearsal.callables, ...its arguments}; its "threads" or "precision" hold
while it runs."""


class Part(msgspec.Struct, frozen=True):
    """One piece of a step, `calls` times in it. A side that is null costs nothing: the remedy adds or spares it."""

    today: Side | None
    then: Side | None
    calls: float = 1.0
    ns: float = 0.0
    """Recorded ns of `today` per step; 0 where the remedy adds it."""
    most_ns: float = 0.0
    """The same by another reading of the recording, where there is one."""

    @property
    def upper_ns(self) -> float:
        """Return the ns that `today` takes by the reading that says more."""
        return max(self.ns, self.most_ns)


class Scene(msgspec.Struct, frozen=True):
    """The rehearsal of one remedy: its parts, played in turn."""

    remedy: str
    parts: tuple[Part, ...]
    """Parts that the remedy adds, then the costliest first: the stage plays as many as fit."""
    seconds: float = 3.0
    better_ns: float = 0.0
    """ns per step that the remedy may spare outside the parts: joins the ceiling."""
    worse_ns: float = 0.0
    """ns per step that it may cost outside them: taken off the low."""
    scaled_by: float = 1.0
    """Factor on the parts' time from the profiled step to the plain one, as on all ops'."""
    left_ns: float = 0.0
    """ns per step of the same kind as the parts, not played for want of time: expected to do as they do."""


class Script(msgspec.Struct, frozen=True):
    """All scenes of one program, and where they are played."""

    torch: str
    device: str
    threads: int
    precision: str
    scenes: tuple[Scene, ...]
    seconds: float = 10.0


class Played(msgspec.Struct, frozen=True):
    """Timings of one scene: `rounds[round][part]` is (ns of one call today, ns then), of the first parts; or why
    not."""

    remedy: str
    rounds: tuple[tuple[tuple[float, float], ...], ...] = ()
    why: str = ""
