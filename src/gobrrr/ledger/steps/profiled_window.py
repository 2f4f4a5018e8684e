"""All that was recorded of the profiled steps, on the trace's clock: for whoever draws all of it, not one step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.launchers import launchers
from gobrrr.ledger.host.host_ops import HostOps, host_ops
from gobrrr.ledger.host.origins import modules, origins
from gobrrr.ledger.host.places import Places, replay
from gobrrr.ledger.memory import allocated_until
from gobrrr.ledger.steps.step_stats import plain_steps
from gobrrr.recording.model.steps import Step
from gobrrr.recording.model.trace import Kernels, Trace, launch_rows
from gobrrr.recording.run_folder.run import Recording
from gobrrr.spans import Ints, lengths

Piece = tuple[int, int, str]
"""Begin, end and kind."""


@dataclass(frozen=True)
class ProfiledWindow:
    """A recording's profiled window. Times are ns on the trace's clock."""

    trace: Trace
    host: HostOps
    places: Places

    @property
    def spans(self) -> Ints:
        """(n, 2) begin and end of the steps."""
        return self.host.spans

    @property
    def begin(self) -> int:
        """First moment of all that was recorded, the steps among it."""
        trace = self.trace
        tables = [table for table in (trace.ops, trace.kernels, trace.runtime) if len(table)]
        return min([int(self.spans[0, 0]), *(int(table.start.min()) for table in tables)])

    @property
    def median(self) -> int:
        """The row of `spans` that has median length."""
        return int(np.argsort(lengths(self.spans), kind="stable")[(len(self.spans) - 1) // 2])

    @cached_property
    def origin(self) -> npt.NDArray[np.int32]:
        """The place that each row of `host` belongs to."""
        return origins(self.host)

    @cached_property
    def module(self) -> list[str]:
        """The module that each row of `host` belongs to."""
        return modules(self.host, self.places)

    @cached_property
    def kernels(self) -> Kernels:
        """The device's work that is the steps'."""
        return self.host.launched(self.trace.kernels, self.trace.runtime)

    @cached_property
    def launcher(self) -> Ints:
        """The row of `host` that launched each of `kernels`, -1 where it is not known."""
        return launchers(self.kernels, self.trace.runtime, self.host.ops, self.host.parent)

    def phases(self) -> list[Piece]:
        """Phases of each step by its outermost ops and its waits for data; one that goes on is one piece."""
        found: list[Piece] = []
        host, steps = self.host, np.searchsorted(self.spans[:, 0], self.host.ops.start, "right")
        begins, ends = host.ops.start.tolist(), (host.ops.start + host.ops.dur).tolist()
        now, step = 0, -1
        for row in np.flatnonzero(host.is_op | host.waits_for_data).tolist():
            phase = host.phase[row]
            if ends[row] <= now or phase == "other":
                continue
            if found and found[-1][2] == phase and steps[row] == step:
                found[-1] = (found[-1][0], ends[row], phase)
            else:
                found.append((max(begins[row], now), ends[row], phase))
            now, step = ends[row], int(steps[row])
        return found

    def queue(self) -> tuple[Ints, Ints]:
        """When the number of (recorded) launches that the device has not begun changes, and that number."""
        kernels, runtime = self.trace.kernels, self.trace.runtime
        row = launch_rows(kernels, runtime)
        known = row >= 0
        launched = np.minimum(runtime.start[row[known]], kernels.start[known])  # clocks may differ by some ns
        times = np.concatenate((launched, kernels.start[known]))
        steps = np.concatenate((np.ones(len(launched), np.int64), -np.ones(len(launched), np.int64)))
        order = np.lexsort((-steps, times))
        return _last_of_each(times[order], np.cumsum(steps[order]))

    def memory(self) -> tuple[Ints, Ints, bool]:
        """Return times, bytes that tensors held on the first device after each, and if those are the allocator's
        totals: without them they are above what was there when the recording began."""
        table, held, totals = allocated_until(self.trace, int(np.iinfo(np.int64).max))
        return *_last_of_each(table.start, held), totals


def profiled_window(recording: Recording) -> ProfiledWindow | None:
    """None where no step was profiled, or nothing of it recorded."""
    window, trace = recording.window("profile"), recording.trace
    if window is None or trace is None or not window.steps:
        return None
    places = replay(window.lines, window.offset)
    host = host_ops(recording, window, trace, places)
    return ProfiledWindow(trace, host, places) if host.end > int(host.spans[0, 0]) else None


@dataclass(frozen=True)
class Profiled:
    """A recording with what several parts of a diagnosis ask of it, worked out once."""

    recording: Recording

    @cached_property
    def plain(self) -> list[Step]:
        """The main loop's plain steps, as of plain_steps()."""
        return plain_steps(self.recording)

    @cached_property
    def window(self) -> ProfiledWindow | None:
        """Its profiled window; None where there is none."""
        return profiled_window(self.recording)


def _last_of_each(times: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return the last of the values that begin at one moment."""
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    return times[last], values[last].astype(np.int64)
