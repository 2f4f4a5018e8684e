"""How near the device's kernels come to what it can do: every kernel's time belongs to the op that launched it, and is
held against that op's FLOPs and bytes at a measured ceiling, or at the data sheet's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.idle import named
from gobrrr.ledger.device.kernel_names import TENSOR_CORE
from gobrrr.ledger.device.launchers import time_launched
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.model.device import DeviceOp, DeviceWork
from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.ledger.model.sums import sums
from gobrrr.ledger.ops.op_groups import Grouping, op_groups
from gobrrr.ledger.ops.pricing import BY_FLOPS, Prices, RowPrices, dtype_of, in_tf32
from gobrrr.ledger.steps.profiled_window import ProfiledWindow
from gobrrr.machine.model.machine import UNKNOWN, Machine
from gobrrr.recording.model.call_tree import with_children
from gobrrr.recording.model.trace import KERNEL, Signature, Trace
from gobrrr.units import shape_text

MAX_NAMED = 8  # unknown ops named, longest first; proposed: a person reads few; a longer list asked for would settle it


def device_ops(
    window: ProfiledWindow, device: Machine | None, updated: Mapping[str, float], grouping: Grouping
) -> tuple[list[OpGroup], float, frozenset[str], tuple[DeviceOp, ...], RowPrices]:
    """Op groups whose `ns` is the time of the kernels that they launched themselves, per step, in the order of their
    first call; the time of all kernels, also of those whose op is not known; the names of ops whose fp32 runs in TF32;
    products, convolutions and attention by their shapes; what each row must cost, where the `device` is known."""
    trace, host = window.trace, window.host
    chosen = window.kernels.kind == KERNEL
    kernels, row = window.kernels.take(chosen), window.launcher[chosen]
    ns = time_launched(kernels, row, len(host))
    tf32 = _in_tf32(trace, host, kernels.name[row >= 0], row[row >= 0])
    prices = Prices(device, 1, None, tf32) if device else Prices.none(UNKNOWN)
    # Without kernels its work has no time: a copy by the driver is none, and what it launched may have run later.
    counts = with_children(ns, host.parent) > 0
    calls = op_groups(replace(host, own=ns), trace, window.places, prices, 0.0, updated, grouping, counts)
    groups = [op for op in calls.groups if op.ns or op.flops or op.bytes]
    shaped = by_shape(host, trace, ns, calls.priced, prices, tf32)
    return groups, float(kernels.dur.sum()) / host.num_steps, tf32, shaped, calls.priced


def _in_tf32(trace: Trace, host: HostOps, names: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> frozenset[str]:
    """The families of which an fp32 op has a kernel that by its name uses matrix units: torch allows TF32 to products
    and to convolutions apart, and to the latter by default."""
    matrix = named(trace, names, TENSOR_CORE)
    found: frozenset[str] = frozenset()
    for row in np.unique(rows[matrix]).tolist() if len(rows) else ():
        number, name = int(host.ops.signature[row]), host.name(row)
        if number >= 0 and name not in found and trace.signatures[number].dtypes[:1] == ("float",):
            found |= next((family for family in FAMILIES if name in family), frozenset())
    return found


def device_work(
    ops: Sequence[OpGroup], kernel_ns: float, tf32: frozenset[str], device: Machine, by_shape: tuple[DeviceOp, ...]
) -> DeviceWork | None:
    """The same by op and dtype, and those of `by_shape`. None where no work is known: no shapes were recorded."""
    counted = [op for op in ops if op.bound is not None]
    if not any(op.flops or op.bytes for op in counted):
        return None
    working = {op.name for op in counted if op.flops or op.bytes}
    told: dict[tuple[str, str], list[OpGroup]] = defaultdict(list)
    for op in counted:
        told[_owner(op, working), in_tf32(op.name, dtype_of(op.dtypes), tf32)].append(op)
    prices = Prices(device, 1, None, tf32)
    rows = sorted((_device_op(*key, same, prices) for key, same in told.items()), key=lambda op: -op.ns)
    flops = sums((row.dtype, row.flops) for row in rows)
    dtype = max(flops, key=lambda d: flops[d])
    unknown = sums((op.name, op.ns if op.bound is None else 0.0) for op in ops)
    longest = sorted(((name, ns) for name, ns in unknown.items() if ns), key=lambda item: -item[1])[:MAX_NAMED]
    bounds = {b: sum(op.floor_ns for op in counted if op.bound == b) for b in ("compute", "bandwidth")}
    return DeviceWork(
        ops=tuple(rows), kernel_ns=kernel_ns, counted_ns=sum(op.ns for op in counted), compute_ns=bounds["compute"],
        bandwidth_ns=bounds["bandwidth"], dtype=dtype, ceiling_flop_rate=device.flop_rate(dtype, 1),
        ceiling_byte_rate=device.byte_rate(math.inf, 1),
        ceiling=device.fingerprint, not_counted=tuple(longest),
        recomputed_flops=sum(op.flops or 0.0 for op in counted if op.recomputed),
        by_shape=by_shape,
    )  # fmt: skip


def _owner(op: OpGroup, working: set[str]) -> str:
    """The op whose work this is: itself, or what it does it for (flash attention has an op inside the op)."""
    if op.flops or op.bytes:
        return op.name
    return next((name for name in reversed(op.parents) if name in working), op.name)


def _device_op(name: str, dtype: str, same: Sequence[OpGroup], prices: Prices) -> DeviceOp:
    floors = sums((op.bound or "", op.floor_ns) for op in same)
    calls = sum(op.calls for op in same if op.name == name) or sum(op.calls for op in same)  # not of what it calls
    bound = max(floors, key=lambda bound: floors[bound])
    return DeviceOp(
        name, dtype, calls, sum(op.ns for op in same), sum(op.flops or 0.0 for op in same),
        sum(op.bytes or 0.0 for op in same), sum(floors.values()), bound,
        prices.ceiling(bound, dtype),
    )  # fmt: skip


# At which shapes do products, convolutions and attention take the device's time?

PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_addmm_activation"))
CONVOLUTIONS = frozenset(("aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::convolution_backward"))
FAMILIES = (PRODUCTS, CONVOLUTIONS)
"""Ops that torch allows TF32 together."""
MAX_SHAPES = 200  # ops by shape, longest first; proposed: bounds the file; a step that lacks one would settle it


def by_shape(
    host: HostOps, trace: Trace, ns: npt.NDArray[np.int64], priced: RowPrices, prices: Prices, tf32: frozenset[str]
) -> tuple[DeviceOp, ...]:
    """Per step, the longest first, from `ns`, the kernel time of every row. An op has those of what it calls to do its
    work: a convolution's backward calls one for the weight and one for the input. Empty where the device is unknown."""
    if not priced.owner:
        return ()
    kernel_ns, floor = (np.bincount(priced.owners, each, len(ns)) for each in (ns.astype(float), priced.floor))
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in np.flatnonzero(priced.modelled & (kernel_ns != 0)).tolist():
        if (work := priced.work[row]) is not None and work.kind in BY_FLOPS:
            groups[int(host.ops.name[row]), int(host.ops.signature[row])].append(row)
    found = []
    for (_, signature), rows in groups.items():
        name, called = host.name(rows[0]), trace.signatures[signature]
        works = [work for row in rows if (work := priced.work[row]) is not None]
        dtype, bound = in_tf32(name, dtype_of(called.dtypes), tf32), priced.bound[rows[0]] or ""
        found.append(DeviceOp(
            name, dtype, len(rows) / host.num_steps,
            float(kernel_ns[rows].sum()) / host.num_steps, sum(work.flops for work in works) / host.num_steps,
            sum(work.bytes for work in works) / host.num_steps, float(floor[rows].sum()) / host.num_steps,
            bound, prices.ceiling(bound, dtype), _shapes(called),
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda op: (-op.ns, op.name, op.shapes))[:MAX_SHAPES])


def _shapes(called: Signature) -> str:
    """Return the shapes of its tensors, in the order of its arguments: '32x512, 512x2048'."""
    return ", ".join(shape_text(each) for each in called.shapes if each and all(isinstance(n, int) for n in each))
