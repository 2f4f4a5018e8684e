"""At which shapes do products, convolutions and attention take the device's time, and how near its ceiling are they?"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.ledger.ops.pricing import BY_FLOPS, Prices, RowPrices, dtype_of, in_tf32
from gobrrr.recording.model.trace import Signature, Trace

PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_addmm_activation"))
CONVOLUTIONS = frozenset(("aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::convolution_backward"))
FAMILIES = (PRODUCTS, CONVOLUTIONS)
"""Ops that torch allows TF32 together."""
MAX_SHAPES = 200  # ops by shape, longest first; proposed: bounds the file; a step that lacks one would settle it


def by_shape(
    host: HostOps, trace: Trace, ns: npt.NDArray[np.int64], priced: RowPrices, prices: Prices, tf32: frozenset[str]
) -> tuple[DeviceOp, ...]:
    """Per step, the longest first, from `ns`, the kernel time of every row. An op has the kernels of those that it
    calls to do its work: a convolution's backward calls one for the weight and one for the input. Empty where nothing
    is priced: the device is not known."""
    if not priced.owner:
        return ()
    kernel_ns, floor = np.zeros(len(ns)), np.zeros(len(ns))
    np.add.at(kernel_ns, priced.owner, ns)
    np.add.at(floor, priced.owner, priced.floor)
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, work in enumerate(priced.work):
        if work is not None and work.kind in BY_FLOPS and kernel_ns[row]:
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
    tensors = (shape for shape in called.shapes if shape and all(isinstance(n, int) for n in shape))
    return ", ".join("x".join(map(str, shape)) for shape in tensors)
