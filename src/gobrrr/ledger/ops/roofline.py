"""The step against the ceilings: FLOPs, bytes, floor, MFU, and what was not counted."""

from __future__ import annotations

from collections import defaultdict

from gobrrr.ledger.model.device import DeviceWork
from gobrrr.ledger.model.ledger import OpGroup, Roofline
from gobrrr.ledger.ops.pricing import Prices, dtype_of

MAX_NAMED = 8  # uncounted ops, longest first; proposed: a person reads few; a longer list asked for would settle it
COUNTED = 0.5
"""Share of the kernels' time from which on the rest may be left out of a utilisation. Proposed."""


def roofline(ops: list[OpGroup], plain: float, prices: Prices) -> Roofline:
    """Return the roofline of ops outside the wait for data. `dtype` is that of most FLOPs. Where no work is known (the
    ops only launch it elsewhere) there is no utilisation, which is not one of zero."""
    counted = [op for op in ops if op.phase != "data" and op.flops is not None]
    flops = sum(op.flops or 0.0 for op in counted)
    by_dtype: dict[str, float] = defaultdict(float)
    for op in counted:
        by_dtype[dtype_of(op.dtypes)] += op.flops or 0.0
    dtype = max(by_dtype, key=lambda d: by_dtype[d]) if by_dtype else "fp32"
    ceiling = prices.flop_rate(dtype)
    mfu, hfu = _utilisation(flops, sum(op.flops or 0.0 for op in counted if op.recomputed), ceiling, plain)
    missing: dict[str, float] = defaultdict(float)
    for op in ops:
        if op.phase != "data" and (op.leaf or op.elsewhere) and op.bound is None:
            missing[op.name] += op.ns
    floor = sum(op.floor_ns for op in counted)
    ranked = sorted(missing.items(), key=lambda item: -item[1])[:MAX_NAMED]
    return Roofline(
        flops=flops, bytes=sum(op.bytes or 0.0 for op in counted), floor_ns=floor,
        mfu=mfu if counted else None, hfu=hfu, dtype=dtype, ceiling_flop_rate=ceiling,
        ceiling_byte_rate=prices.memory_rate() if counted else None,
        speed_of_light=floor / plain if counted and plain else None,
        not_counted_share=sum(missing.values()) / plain if plain else 0.0,
        not_counted=tuple((name, ns / plain) for name, ns in ranked) if plain else (),
    )  # fmt: skip


def device_roofline(work: DeviceWork, plain: float) -> Roofline:
    """Return the roofline of an accelerator's kernels. Floors are added up, so streams that overlap can pass the speed
    of light only where they do. No MFU and no speed of light where most of the kernels' time is that of uncounted work:
    "MFU 0.0 %" said of such a step that it does nothing."""
    flops, floor = work.flops, work.compute_ns + work.bandwidth_ns
    mfu, hfu = _utilisation(flops, work.recomputed_flops, work.ceiling_flop_rate, plain)
    known = work.counted_ns >= COUNTED * work.kernel_ns
    if not known:
        mfu = hfu = None
    return Roofline(
        flops=flops, bytes=sum(op.bytes for op in work.ops), floor_ns=floor,
        mfu=mfu, hfu=hfu, dtype=work.dtype, ceiling_flop_rate=work.ceiling_flop_rate,
        ceiling_byte_rate=work.ceiling_byte_rate,
        speed_of_light=floor / plain if plain and known else None,
        ceiling=work.ceiling, not_counted_share=(work.kernel_ns - work.counted_ns) / plain if plain else 0.0,
        not_counted=tuple((name, ns / plain) for name, ns in work.not_counted) if plain else (),
    )  # fmt: skip


def _utilisation(
    flops: float, repeated: float, ceiling: float | None, plain: float
) -> tuple[float | None, float | None]:
    """MFU without what was computed again, and HFU with it where anything was."""
    if not ceiling or not plain:
        return None, None
    rate = 1e9 / plain / ceiling
    return (flops - repeated) * rate, flops * rate if repeated else None
