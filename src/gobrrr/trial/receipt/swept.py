"""The Swept and Fitted nouns: what a sweep of one setting found, and whether an edit makes a program fit."""

from __future__ import annotations

import msgspec

from gobrrr.errors import NOT_BETTER, OPEN, REFUSED
from gobrrr.guard.model.gate import ACCEPTED, Gated
from gobrrr.guard.model.verdict import Guarded
from gobrrr.rules.memory.out_of_memory import Diagnosis
from gobrrr.rules.memory.way import Way
from gobrrr.trial.race.sweep import Point
from gobrrr.trial.statistics.scaling import Line


class Fit(msgspec.Struct, frozen=True):
    """What fits into `memory` bytes. `largest`: value that fits surely; `added`: bytes for a device's context."""

    memory: int
    largest: int | None
    law: Line | None
    now_low: float | None = None
    now_high: float | None = None
    """Interval of the peak at the program's own value."""
    added: int = 0
    roles: tuple[tuple[str, int], ...] = ()
    """Bytes by role at the program's own value."""
    ways: tuple[Way, ...] = ()
    as_it_is: tuple[Point, ...] = ()
    """Values in an unchanged environment, where the C library keeps freed memory that it gave back for the points: the
    largest that was measured, then those that were said to fit."""
    keeps: float = 0.0
    """Share of tensors that the C library's allocator keeps beside them after they are freed, at the last of these."""
    largest_returned: int | None = None
    """Value that fits where it gives them back."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found: schema gobrrr.sweep/1."""

    schema: str = "gobrrr.sweep/1"
    setting: str
    where: str
    now: str
    is_batch: bool = True
    points: tuple[Point, ...] = ()
    time_law: Line | None = None
    peak_law: Line | None = None
    knee: int | None = None
    """Batch from which twice the size makes the step longer by DOUBLING or more."""
    best: str = ""
    best_within: str = ""
    """The best whose 99th percentile is within the latency that was asked for."""
    latency_ns: float | None = None
    objective: str = "time"
    """Figure by which the best is the best: time or energy."""
    gates: dict[str, tuple[Gated, ...]] = {}
    """The user's measures at each value, against those at the program's own."""
    unread: dict[str, str] = {}
    """Values whose measures could not be taken, and why."""
    unbeaten: tuple[str, ...] = ()
    """Values with gates that no other one beats: is as good in speed and every measure, and better in one."""
    fit: Fit | None = None
    flops: float | None = None
    """Model FLOPs of a step at the program's own value, as far as they are counted."""
    ceiling_flop_rate: float | None = None
    tokens: float | None = None
    """Tokens of a step at the program's own value."""
    price_per_hour: float | None = None
    seconds: float = 0.0
    command: tuple[str, ...] = ()
    machine: str = ""
    complete: bool = True

    def samples_per_s(self, point: Point) -> float | None:
        """Return the samples per second of a batch size; steps per second of another setting."""
        if point.step_ns is None:
            return None
        return 1e9 * (point.number if self.is_batch else 1.0) / point.step_ns

    def tokens_per_s(self, point: Point) -> float | None:
        """Return the tokens per second of a batch size: as many in a sample as at the program's own."""
        rate, own = self.samples_per_s(point), Point(self.now).number
        return rate * self.tokens / own if self.is_batch and rate and self.tokens and own else None

    def mfu(self, point: Point) -> float | None:
        """Return the FLOPs per second over the machine's ceiling: as many FLOPs for a sample as at the program's own
        batch size."""
        rate, own = self.samples_per_s(point), Point(self.now).number
        if not (self.is_batch and rate and own and self.flops and self.ceiling_flop_rate):
            return None
        return rate * self.flops / own / self.ceiling_flop_rate

    def accepts(self, point: Point) -> bool:
        """Whether a value is held by all gates; the program's own is by definition."""
        told = self.gates.get(point.value, ())
        asked = bool(self.gates or self.unread) and point.value != self.now
        return not asked or (bool(told) and all(gate.verdict == ACCEPTED for gate in told))

    def joules(self, point: Point) -> float | None:
        """Return the energy of a sample; of a step where another setting than the batch is varied."""
        return point.joules / (point.number if self.is_batch and point.number else 1.0) if point.joules else None

    def million(self, point: Point) -> float | None:
        """Return the price of a million samples; of a million steps where another setting than the batch is varied."""
        rate = self.samples_per_s(point)
        return 1e6 / rate / 3600 * self.price_per_hour if rate and self.price_per_hour else None


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an edit makes a program fit that dies of memory: schema gobrrr.fitted/1."""

    schema: str = "gobrrr.fitted/1"
    edit: str
    plain: Diagnosis
    """Why the program as it is dies."""
    fits: bool
    steps: int = 0
    """Steps that the edited program made."""
    again: Diagnosis | None = None
    """Why it dies of memory still."""
    ended: str = ""
    """How it ended else, too early to be said to fit."""
    guard: Guarded = Guarded()
    batch: str = ""
    """The setting at which numbers were compared."""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0: it fits, and its numbers match; else as docs/prove/exit-codes.md has it."""
        if not self.fits:
            return NOT_BETTER
        return 0 if self.guard.green else REFUSED if self.guard.red else OPEN
