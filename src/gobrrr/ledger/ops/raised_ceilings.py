"""A ceiling is never lower than what the program itself reached: the machine's ceilings, raised by the profiled window.

Ceilings are measured once and kept; on a shared machine that moment may have been a busy one. An op that ran faster
than its ceiling is a better measurement of the same thing on the same machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec
import numpy as np

from gobrrr.ledger.model.ledger import Roofline
from gobrrr.ledger.ops.pricing import assigned, dtype_of
from gobrrr.ledger.steps.profiled_window import Profiled, ProfiledWindow
from gobrrr.machine.model.bounds import at_least, bounded
from gobrrr.machine.model.machine import CopyCeiling, Machine, Measured
from gobrrr.recording.model.vitals import rates

# Ops shorter than this say more of dispatch and of the clock than of the machine.
MIN_NS = 100_000
MIN_CALLS = 3  # calls that raise a ceiling; proposed: one may be mistimed; ceilings of repeated runs would settle it
MOST = 10.0
"""Multiple of its ceiling beyond which work was done elsewhere (on the meta device): no moment is so busy. Proposed."""
BUSY = 1.5
"""The same of the whole step: plain steps are faster than the profiled one that has raised the ceilings. Proposed."""
_PRODUCTS = frozenset({"matmul", "convolution"})
_STREAMS = frozenset({"elementwise", "copy"})


def raised(machine: Machine, profiled: Profiled, matmul_precision: str | None) -> Machine:
    """The machine with every ceiling at least at the upper quartile of what the window's long ops reached, and as many
    cores as the program kept busy."""
    found, recording, window = machine, profiled.recording, profiled.window
    if window is not None and "device" not in window.trace.signals:
        products, streams = _reached(window)
        fp32 = machine.fp32_path(matmul_precision, convolved=False)
        threads = recording.start.threads
        found = msgspec.structs.replace(
            machine,
            matmul=_matmul(machine, {fp32 if d == "fp32" else d: rates for d, rates in products.items()}, threads),
            copy=tuple(_copy(ceiling, machine, streams, threads) for ceiling in machine.copy),
        )
    busy = rates(recording, profiled.plain).get("process_load") or 0.0
    return bounded(found, busy) if found.fingerprint else found


def beaten(roof: Roofline) -> float:
    """Factor by which the whole step beats its ceilings, where a busy moment when they were measured explains it; 1
    elsewhere: what is farther off is another mistake."""
    reached = max(filter(None, (roof.mfu, roof.hfu, roof.speed_of_light)), default=0.0)
    return reached if 1 < reached <= BUSY else 1.0


def faster(machine: Machine, factor: float) -> Machine:
    """The machine with all ceilings of FLOPs and bytes so many times as high."""

    def times(one: Measured) -> Measured:
        return msgspec.structs.replace(one, median=one.median * factor, low=one.low * factor, high=one.high * factor)

    return msgspec.structs.replace(
        machine,
        matmul={name: {kind: times(one) for kind, one in kinds.items()} for name, kinds in machine.matmul.items()},
        copy=tuple(msgspec.structs.replace(ceiling, rate=times(ceiling.rate)) for ceiling in machine.copy),
    )


def _reached(window: ProfiledWindow) -> tuple[dict[str, list[float]], list[tuple[float, float]]]:
    """FLOP/s by dtype, and (bytes, bytes/s) of streaming ops, of all calls that lasted long enough."""
    _, recorded, (works, _) = assigned(window.host, window.trace, {})
    products: dict[str, list[float]] = defaultdict(list)
    streams: list[tuple[float, float]] = []
    for work, call, dur in zip(works, recorded, window.host.ops.dur.tolist(), strict=True):
        ns = float(dur)
        if work is None or call is None or ns < MIN_NS:
            continue
        if work.kind in _PRODUCTS:
            products[dtype_of(call.dtypes)].append(1e9 * work.flops / ns)
        elif work.kind in _STREAMS:
            streams.append((work.bytes, 1e9 * work.bytes / ns))
    return products, streams


def _matmul(machine: Machine, reached: Mapping[str, list[float]], threads: int) -> dict[str, dict[str, Measured]]:
    key = "1" if threads <= 1 else "all" if threads == machine.threads else ""
    found = {name: dict(ceilings) for name, ceilings in machine.matmul.items()}
    for dtype, seen in reached.items():
        if dtype in found.get(key, {}):
            found[key][dtype] = _lifted(found[key][dtype], seen)
    return found


def _copy(ceiling: CopyCeiling, machine: Machine, streams: list[tuple[float, float]], threads: int) -> CopyCeiling:
    smaller = max((c.working_set for c in machine.copy if c.working_set < ceiling.working_set), default=0)
    seen = [rate for num_bytes, rate in streams if smaller < num_bytes <= ceiling.working_set]
    if ceiling.threads != min(threads, machine.threads):
        return ceiling
    return msgspec.structs.replace(ceiling, rate=_lifted(ceiling.rate, seen))


def _lifted(ceiling: Measured, reached: list[float]) -> Measured:
    """The ceiling, no lower than the upper quartile of what was reached here."""
    here = [rate for rate in reached if rate <= MOST * ceiling.median]
    return at_least(ceiling, float(np.percentile(here, 75))) if len(here) >= MIN_CALLS else ceiling
