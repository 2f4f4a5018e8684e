"""Memory of a step by what it is for; and the accelerator's by the allocator's own record: the most that was allocated
and by which op, what was reserved for it, what every step leaves behind, and how often the driver was asked."""

from __future__ import annotations

import numpy as np

from gobrrr.ledger.device.idle import ALLOCATOR, named
from gobrrr.ledger.device.launchers import innermost
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.device import DeviceMemory
from gobrrr.ledger.model.ledger import MemoryLedger
from gobrrr.recording.model.facts import Facts
from gobrrr.recording.model.trace import Memory, Trace
from gobrrr.spans import Ints

CPU = 0  # device type of the host (c10::DeviceType)
FEWEST_STEPS = 3
"""Steps from which a rise is one: the first fills caches."""
MAKERS = ("aten::empty", "aten::resize_")


def device_memory(trace: Trace, host: HostOps, places: Places, facts: Facts) -> DeviceMemory | None:
    """Return the memory of the window's steps; where the profiler did not record the device's allocations, of the whole
    program by what its allocator said in the end. None where neither is known."""
    table, allocated, totals = allocated_until(trace, host.end)
    within = table.start >= host.begin
    if not within.any():
        return _of_the_program(trace, host, facts)
    peak = int(np.flatnonzero(within)[np.argmax(allocated[within])])
    row = _allocating(table, peak, host)
    return DeviceMemory(
        peak=int(allocated[peak]), reserved=int(table.total_reserved[within].max()) if totals else None,
        op=host.name(row) if row >= 0 else "",
        where=places.places[int(places.at(table.start[peak : peak + 1])[0])].where,
        growth_per_step=_growth(table.start, allocated, host), driver_calls=_driver_calls(trace, host),
        capacity=_capacity(trace, int(table.device[0])), since_start=not totals,
    )  # fmt: skip


def _of_the_program(trace: Trace, host: HostOps, facts: Facts) -> DeviceMemory | None:
    if facts.device_peak_bytes is None:
        return None
    return DeviceMemory(
        facts.device_peak_bytes, facts.device_reserved_bytes, growth_per_step=facts.device_growth_per_step,
        driver_calls=_driver_calls(trace, host), capacity=facts.device_capacity_bytes, resident=facts.peak_rss_bytes,
    )  # fmt: skip


def _driver_calls(trace: Trace, host: HostOps) -> float:
    """Per step."""
    runtime = trace.runtime
    calls = named(trace, runtime.name, ALLOCATOR) & (runtime.start >= host.begin) & (runtime.start < host.end)
    return float(calls.sum()) / host.num_steps


def allocated_until(trace: Trace, end: int) -> tuple[Memory, Ints, bool]:
    """The first device's allocations and frees before `end`, the bytes that were held after each, and whether those are
    the allocator's own totals: without them they are above what was there when the recording began."""
    table = trace.memory.take((trace.memory.device_type > CPU) & (trace.memory.bytes != 0))
    first = table.device.min() if len(table) else 0
    table = table.take((table.device == first) & (table.start < end))
    totals = bool((table.total_allocated >= 0).all())
    return table, table.total_allocated if totals else np.cumsum(table.bytes), totals


def _allocating(table: Memory, row: int, host: HostOps) -> int:
    """The innermost op open at an allocation that wanted it for itself (empty makes it for another); -1 if none."""
    one = table.take(np.arange(len(table)) == row)
    found = int(innermost(host.ops, host.parent, one.start, one.thread)[0])
    while found >= 0 and host.parent[found] >= 0 and host.name(found).startswith(MAKERS):
        found = int(host.parent[found])
    return found


def _growth(times: Ints, allocated: Ints, host: HostOps) -> float | None:
    """Least bytes by which any step ended higher than the one before, 0 where one did not; null for too few steps."""
    ends = allocated[np.maximum(np.searchsorted(times, host.spans[:, 1], "right") - 1, 0)]
    if len(ends) < FEWEST_STEPS:
        return None
    return float(max(0, np.diff(ends)[1:].min(initial=np.iinfo(np.int64).max)))


def _capacity(trace: Trace, number: int) -> int | None:
    found = next((d.get("totalGlobalMem") for d in trace.properties.devices if d.get("id") == number), None)
    return found if isinstance(found, int) and found > 0 else None


def memory_ledger(facts: Facts, device: DeviceMemory | None = None) -> MemoryLedger:
    """From the modules, the optimizers, the counting step and the process's resident peak, or the accelerator's by its
    allocator. Unseen stays null."""
    in_modules = sum(m.param_bytes - m.shared_param_bytes for m in facts.modules)
    peak = device.peak if device is not None else facts.peak_rss_bytes
    most = facts.peak_rss_bytes if device is None else None

    def there(value: int | None) -> int | None:
        """Null where it is more than was ever in memory: tensors on the meta device, files that are mapped."""
        return None if value is not None and most is not None and value > most else value

    parameters = in_modules or sum(o.param_bytes for o in facts.optimizers) or None
    gradients = sum(o.grad_bytes for o in facts.optimizers) if facts.optimizers else None
    state = sum(o.state_bytes for o in facts.optimizers) if facts.optimizers else None
    inputs = there(sum(i.num_bytes for i in facts.inputs if not i.made) if facts.inputs else None)
    activations = there(facts.saved_total)
    named = [("parameters", parameters), ("gradients", gradients), ("optimizer state", state)]
    named += [("activations", activations), ("inputs", inputs)]
    known = [(name, value) for name, value in named if value]
    runtime = facts.runtime_bytes if device is None else None
    rest = max(0, peak - sum(value for _, value in known) - (runtime or 0)) if peak is not None else None
    elements = sum(o.num_elements for o in facts.optimizers)
    model = sum(o.param_bytes + o.grad_bytes + o.state_bytes for o in facts.optimizers)
    growth = facts.rss_growth_per_step if device is None else device.growth_per_step
    return MemoryLedger(
        parameters, gradients, state, activations, inputs, runtime, rest, peak,
        tuple(sorted(known, key=lambda item: -item[1])), growth,
        model / elements if elements else None,
    )  # fmt: skip
