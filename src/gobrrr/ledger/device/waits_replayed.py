"""How much do waits for the device cost the plain step, and by how much is it shorter where kernels are?

A profiler makes the host twice as slow and the device not, so that in the window the host is late anyway, and a wait
hardly costs. So the window is played again as a queue, at the speed at which the program runs alone: the host works,
launches, and waits; the device does what was launched, one thing after the other, each as long as it took. The host's
work is made shorter by one factor until a step takes as long as the plain one. Then it is played once more without the
waits and what fetching a number takes the host besides; the difference is what they cost. And with lighter kernels: a
host that is late anyway has little of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.idle import Sync, stretches_of, told_syncs, waits_for_device
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.recording.model.trace import Kernels, Trace, lanes, launch_rows
from gobrrr.spans import Ints, as_spans, elapsed, merged

BEGIN_NS, RETURN_NS, GAP_NS = 8_000, 8_000, 1_300
"""From a launch to the begin of its kernel on an idle device, from the end of work to the return of a wait for it, and
between two that were queued; on an H200 the quickest twentieth 7.5 us, 4 when profiled, the median 1.1 to 1.6 us."""
ONE_QUEUE = 0.95
"""Share of the work that must be on one stream: several wait for each other in ways that nobody recorded. Proposed."""
NUMBER = "aten::item"
"""An item(), a float(), a print: whoever keeps the number on the device spares all of that."""
LIGHTER = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Shares of the kernels' time that are played as gone; between them it is a line."""
FASTEST, SLOWEST, ROUNDS = 0.02, 2.0, 24
"""Lengths of the host's work over the window's own that are tried, and halvings: 1e-5 of it is left."""


@dataclass(frozen=True)
class Queue:
    """The window as the host's moments, in order. `work`: ns that the host worked until each, waits left out; `fixed`:
    of which the profiler makes nothing longer, waits for data and for ranks say. `fetching`: of the work, what a number
    is fetched with. `service`: ns of device work that each launches. `call`: number of the waiting call whose wait each
    is, -1 where it is none; `until`: the moment whose work it waits for, which is not all that was launched where it
    waits for an event. The last is the end."""

    work: list[float]
    fixed: list[float]
    fetching: list[float]
    service: list[float]
    call: list[int]
    until: list[int]

    def played(self, factor: float, waits: bool = True, lighter: float = 0.0) -> tuple[float, dict[int, float]]:
        """ns of the window, once it follows on itself, with the host's work times `factor`, its kernels `lighter` by
        that share; and how long each call had the host wait."""
        ends, waited, host, device = [0.0], dict[int, float](), 0.0, 0.0
        for _ in range(2):
            begun, blocked = host, 0.0
            waited, done = {}, list[float]()
            for work, fixed, fetching, service, call, until in zip(
                self.work, self.fixed, self.fetching, self.service, self.call, self.until, strict=True
            ):
                host = begun + (work if waits else work - fetching) * factor + fixed + blocked
                if service:
                    device = max(device + GAP_NS, host + BEGIN_NS) + (1 - lighter) * service
                done.append(device)
                if waits and call >= 0 and until >= 0 and (late := done[until] + RETURN_NS - host) > 0:
                    waited[call] = waited.get(call, 0.0) + late
                    blocked += late
                    host += late
            ends.append(max(host, device))
        return ends[2] - ends[1], waited


class AtPlainSpeed(NamedTuple):
    """Per plain step."""

    syncs: tuple[Sync, ...]
    """The calls that wait for the device with the ns that the step would be shorter without them."""
    lighter: tuple[tuple[float, float], ...]
    """(ns of kernels that go, ns by which the step is shorter), in order."""


def at_plain_speed(trace: Trace, kernels: Kernels, host: HostOps, places: Places, plain: float) -> AtPlainSpeed | None:
    """None where it cannot be told: without plain steps, where streams run side by side, or where no speed of the host
    makes the window as long as those."""
    if not host.drained or not plain or not _in_one_queue(kernels):
        return None
    calls, names, _ = waits_for_device(trace, host)
    queue = _queue(trace, kernels, host, as_spans(calls.start, calls.dur))
    factor = _factor(queue, plain * host.num_steps)
    if not FASTEST < factor < SLOWEST:
        return None
    with_waits, waited = queue.played(factor, waits=True)
    saved = max(0.0, with_waits - queue.played(factor, waits=False)[0])
    total = sum(waited.values())
    each = np.array([saved * waited.get(i, 0.0) / total if total else 0.0 for i in range(len(calls))])
    lighter = ((share * sum(queue.service), with_waits - queue.played(factor, lighter=share)[0]) for share in LIGHTER)
    return AtPlainSpeed(
        told_syncs(trace, host, places, names, calls.start, each),
        tuple((freed / host.num_steps, max(0.0, ns) / host.num_steps) for freed, ns in lighter),
    )


def _in_one_queue(kernels: Kernels) -> bool:
    work = np.bincount(lanes(kernels), kernels.dur.astype(float))
    return bool(len(work)) and float(work.max()) >= ONE_QUEUE * float(work.sum())


def _factor(queue: Queue, length: float) -> float:
    """By which the host's work must be multiplied for the window to take so long."""
    low, high = FASTEST, SLOWEST
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if queue.played(middle, waits=True)[0] < length:
            low = middle
        else:
            high = middle
    return FASTEST if low == FASTEST else high


def _queue(trace: Trace, kernels: Kernels, host: HostOps, waits: Ints) -> Queue:
    begin, end = int(host.spans[0, 0]), host.end
    row, service = launch_rows(kernels, trace.runtime), _service(kernels)
    times = np.where(row >= 0, trace.runtime.start[row], kernels.start) if len(trace.runtime) else kernels.start
    moments = np.concatenate((times, waits[:, 0], [end]))
    kind = np.concatenate((np.full(len(times), -1), np.arange(len(waits)), [-1]))
    given = np.concatenate((service, np.zeros(len(waits) + 1)))
    order = np.lexsort((kind, moments))  # what a call launches itself, and waits for, comes before its wait
    ends = np.concatenate((kernels.start + kernels.dur, np.zeros(len(waits) + 1, np.int64)))[order]
    until = _awaited(np.where(given[order] > 0, ends, 0), kind[order], waits)
    moments = moments[order]
    waiting = host.waits_for_data | host.waits_for_ranks
    number = np.array([name == NUMBER for name in host.names], bool)[host.ops.name]
    fetched, numbers = (stretches_of(host, chosen) for chosen in (waiting, number))
    away = merged(np.concatenate((fetched, waits)))
    fixed = elapsed(moments, away) - elapsed(moments, merged(waits))  # who carries a sum may wait for the device in it
    work = np.maximum(0, moments - begin - elapsed(moments, away))
    fetching = elapsed(moments, merged(np.concatenate((numbers, away)))) - elapsed(moments, away)
    work, fixed, fetching, given = (column.astype(float).tolist() for column in (work, fixed, fetching, given[order]))
    return Queue(work, fixed, fetching, given, kind[order].tolist(), until)


def _awaited(ends: Ints, kind: Ints, waits: Ints) -> list[int]:
    """Per moment that is a wait: the last one before it with whose work, and all before, the device was done when the
    call returned; -1 elsewhere. `ends`: of the work that each launched, 0 where it is none."""
    at = np.flatnonzero(kind >= 0)
    found = np.full(len(kind), -1, np.int64)
    done = np.searchsorted(np.maximum.accumulate(ends), waits[kind[at], 1], "right") - 1
    found[at] = np.minimum(done, at - 1)
    listed: list[int] = found.tolist()
    return listed


def _service(kernels: Kernels) -> npt.NDArray[np.float64]:
    """Return what each kernel adds to the time in which the device works."""
    order = np.argsort(kernels.start, kind="stable")
    starts, ends = kernels.start[order], (kernels.start + kernels.dur)[order]
    before = np.concatenate(([0], np.maximum.accumulate(ends)[:-1])) if len(ends) else ends
    found = np.zeros(len(kernels))
    found[order] = np.maximum(0, ends - np.maximum(starts, before))
    return found
