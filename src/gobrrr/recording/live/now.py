"""Facts known of a program while it runs: one type for each form in which they are told (schema gobrrr.top/1)."""

from __future__ import annotations

import msgspec

SCHEMA = "gobrrr.top/1"
RUNNING, ENDED, CUT, ELSEWHERE, WAITING = "running", "ended", "cut short", "not to be seen from here", "no step yet"
"""States: it runs; it has ended and said so; it has ended without a word; nothing here tells; it has made no step."""
WATCHED, RESTING, LOOKING, OVER = "watched", "counted", "looked at closely", "not watched any more"
"""Work of gobrrr meanwhile: all hooks stand; they rest and steps are counted; a window is open; it has finished."""


class Part(msgspec.Struct, frozen=True):
    """A part of the step of late. `ns`: per step; None: no mark of it was seen."""

    name: str
    ns: float | None
    share: float | None


class Process(msgspec.Struct, frozen=True):
    """One watched process. Times are ns, sizes bytes, loads cores; None is not known."""

    pid: int
    rank: int | None = None
    state: str = WAITING
    watching: str = WATCHED
    ran_ns: int | None = None
    silent_ns: int | None = None
    """ns since its recording was written last."""
    kind: str = ""
    """Kind of its steps: updates, forwards, steps(), batches, backward passes, graph replays."""
    steps: int = 0
    late_steps: int = 0
    late_ns: float | None = None
    """Median of the last ones."""
    median_ns: float | None = None
    """Median of all steps that no closer look made longer, within half a percent."""
    change: float | None = None
    """Share by which the last quarter of them is longer than the first."""
    history_ns: tuple[float, ...] = ()
    """Medians of equal pieces of the run."""
    samples_per_s: float | None = None
    split_steps: int = 0
    parts: tuple[Part, ...] = ()
    """Parts of the middle half, by length, of the last watched steps, on the host's clock; they add up to these."""
    device: str | None = None
    rss_bytes: int | None = None
    rss_growth: float | None = None
    """Bytes per step, since the last closer look."""
    device_bytes: int | None = None
    """Bytes that torch's allocator has handed out."""
    device_growth: float | None = None
    busy_cores: float | None = None
    other_cores: float | None = None
    """Cores that it may use and that are busy with others' work, its own loader's workers among them."""
    starved: float | None = None
    """Share of the time that its threads wanted a core in which they got none."""
    doubts: tuple[str, ...] = ()


class DeviceNow(msgspec.Struct, frozen=True):
    """A device's gauges as they were read last; None is not known."""

    name: str
    busy: float | None = None
    watts: float | None = None
    limit_w: float | None = None
    clock_mhz: int | None = None
    celsius: int | None = None
    used: int | None = None
    """Bytes of its memory in use by anybody."""
    memory_bytes: int | None = None


class Now(msgspec.Struct, frozen=True):
    """A run at this moment. `read`: the share of its recording that was read so far."""

    folder: str
    program: str
    state: str
    read: float
    processes: tuple[Process, ...]
    more_processes: int
    next: str
    """Command to type next."""
    schema: str = SCHEMA
    devices: tuple[DeviceNow, ...] = ()
    """While it runs, where gauges are sampled beside it."""
    devices_ns: int | None = None
    """ns since they were read."""
