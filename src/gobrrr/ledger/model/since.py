"""What became of the steps until a look that was asked for. A part of the Ledger noun."""

from __future__ import annotations

import msgspec

APART = 0.1
"""Change of the step from which it counts as one (proposed: equal steps on a crowded machine differed by 6 %)."""


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of then held against those of the look. ns and bytes; `low`, `high`: 95 % interval of the change."""

    step: int
    """Steps that the loop had made by then, the first one, whose begin nobody saw, among them."""
    looked: bool = False
    """Then was another look."""
    then_ns: float
    now_ns: float
    low: float
    high: float
    memory: int | None = None
    """Bytes that the process holds more now; null where nobody read it, or as good as none."""
    device_memory: int | None = None
    clocks: tuple[tuple[str, float, float], ...] = ()
    """(device, MHz then, MHz now), of those whose clock changed."""
    kept: tuple[tuple[str, int], ...] = ()
    """(container that grows, tensors in it)."""
    ops: tuple[tuple[str, float, float], ...] = ()
    """(op, ns per step then, now) of two looks: those that changed most, where the step did."""

    @property
    def change(self) -> float:
        """Share by which a step is longer now."""
        return self.now_ns / self.then_ns - 1 if self.then_ns else 0.0

    @property
    def changed(self) -> bool:
        """Whether that is more than steps differ by anyway."""
        return abs(self.change) >= APART and self.low * self.high > 0
