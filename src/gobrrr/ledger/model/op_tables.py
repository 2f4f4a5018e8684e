"""Tables of all ops, by op, by shape, by line or by module. A part of the Ledger noun."""

from __future__ import annotations

import msgspec

from gobrrr.recording.model.facts import Span


class OpRow(msgspec.Struct, frozen=True):
    """Ops of one group, per profiled step, in ns. Self time is without the ops that they call; `total_ns` is with them,
    of a module with the modules below it. `device_ns`: what they launched themselves, kernels, copies, sets and
    collectives; the costliest ops of a report are of kernels alone."""

    name: str
    ops: float
    self_ns: float
    total_ns: float
    calls: float | None = None
    """Calls: of an op as `ops`; of a module how often its forward was called, null of what has none (a ModuleList, ops
    outside of all modules); null of a line."""
    device_ns: float | None = None
    """Null where no device works, or none was recorded."""
    device_total_ns: float | None = None
    flops_per_s: float | None = None
    """On the device where one works; null where no work of them is modelled, or the time is too short to tell."""
    of_peak: float | None = None
    """Share of their time that the work takes at least, at the ceilings that were measured."""
    detail: str = ""
    """Shapes of its tensors, the class of a module."""
    where: Span | None = None

    @property
    def average_ns(self) -> float | None:
        """Total of one call, of a module with its backward; None where calls are not known."""
        return self.total_ns / self.calls if self.calls else None


class OpTable(msgspec.Struct, frozen=True):
    """Rows by one of WAYS, those that take most first. Self times and ops of the rows and of `others` add up to those
    of all ops, whatever the way."""

    by: str
    rows: tuple[OpRow, ...] = ()
    others: OpRow | None = None
    num_others: int = 0
    why: str = ""
    """Why there is nothing to group by."""
    on_device: bool = False
