"""BRR204, BRR205 and BRR210: passes over memory for a layout, a number format or a batch norm alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import CONVOLUTIONS, FLOATS, MATMULS, MODEL, by_line, costliest_line, inside, kind, total
from gobrrr.rules.model.views import graph_makers
from gobrrr.units import duration, share
from gobrrr.words import OPTIMIZER

COPYING = ("aten::copy_", "aten::_to_copy", "aten::to")
REORDERING = re.compile("nchwToNhwc|nhwcToNchw")
"""cuDNN's kernels from rows to channels_last and back, around a convolution."""
EIGHT_BITS = tuple(f"c10::Float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"))
"""8-bit floating dtypes. A machine without units for them casts them to and fro: they are emulated."""


@rule("BRR204", "bandwidth", needs={"ops", "shapes"}, remedies=("compile_frozen", "channels_last"), on_device=True)
def layout_copies(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Copies between tensors of one dtype and shape whose strides differ: contiguous(), reshape(), clone(); and those
    that a GPU's convolutions make for themselves, whose matrix units want the channels last."""
    copies = [op for op in ledger.ops if op.phase in MODEL and _changes_layout(op)]
    kernels = ledger.device.kernels if ledger.device is not None and ledger.of_device else ()
    within = sum(ns for name, _, ns, _ in kernels if REORDERING.search(name))
    own = total(copies)
    cost = own + within
    if not worth_telling(ledger, 0.8 * cost):
        return
    lines = by_line(copies)
    first = next(iter(lines.values()), [])
    # One layout throughout also spares convolutions their own reordering: 1.13 to 1.22 times with channels_last, and
    # twice on a step of small ones.
    convolutions = [op for op in ledger.ops if op.name in CONVOLUTIONS]
    expected = 0.8 * cost + 0.1 * total(convolutions)
    most = f"{duration(within)} of it within convolutions, which want the channels last"
    if within <= own:
        most = f"{'x'.join(map(str, first[0].shapes[0]))} most of all"
    yield Cause(
        saving=(0.3 * cost, expected, 1.15 * cost + sum(max(0.0, op.ns - op.floor_ns) for op in convolutions)),
        message=f"{duration(cost)} per step ({share(cost / ledger.wall)}) goes into copies that only change a layout, "
        + most,
        advice="Keep one layout through the model: drop the permute and contiguous() pair, or use einsum, "
        "channels_last or a view where the next op takes strides.",
        where=costliest_line(convolutions if within > own else copies),
        evidence={"copies": count(sum(op.calls for op in copies)), "time": time(cost), "lines": count(len(lines)),
                  "within_convolutions": time(within), "share_of_first_line": ratio(total(first) / cost)},
        # Without convolutions nothing wants the channels last: in a transformer the remedy never took hold.
        vain=() if convolutions else ("channels_last",),
    )  # fmt: skip


def _changes_layout(op: OpGroup) -> bool:
    """copy_(target, source) of one shape and dtype whose strides differ where a dimension is longer than one.

    One that the program calls itself (`cache[:, :n] = keys`) fills a tensor that it keeps: no layout is changed there.
    """
    inner = op.name == "aten::copy_" and inside(op, "aten::")
    # A convolution's backward brings its gradient into its own order: nobody's line asks for that.
    if not inner or inside(op, OPTIMIZER, "aten::convolution_backward"):
        return False
    if len(op.shapes) < 2 or len(op.strides) < 2:
        return False
    (shape, source), (to, origin) = op.shapes[:2], op.strides[:2]
    if shape != source or len(shape) < 2 or len(op.dtypes) < 2 or op.dtypes[0] != op.dtypes[1]:
        return False
    moved = [(a, b) for a, b, length in zip(to, origin, shape, strict=False) if length > 1]
    spread = any(b == 0 for _, b in moved)  # a bias over its rows, the gradient of a sum: no layout, and no way round
    return not spread and any(a != b for a, b in moved)


@rule("BRR205", "bandwidth", needs={"ops", "shapes", "facts"}, on_device=True)
def dtype_casts(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Copies between two floating formats, in every step. Those that autocast makes are its price, not a mistake."""
    if ledger.facts.settings.autocast:
        return
    casts = [op for op in ledger.ops if op.phase in MODEL and _casts(op)]
    around = [op for op in ledger.ops if op.phase in MODEL and op.name in COPYING[1:]]
    lines = by_line(casts)
    cost = total(casts) + total(op for op in around if op.where and op.where[0] in lines)
    if not worth_telling(ledger, 0.8 * cost):
        return
    made = {(op.shapes[0], op.dtypes[:2]) for op in casts if op.phase != "backward"}
    round_trip = any((shape, (source, target)) in made for shape, (target, source) in made)
    names = {"float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16"}
    dtypes = {dtype for op in casts for dtype in op.dtypes[:2]}
    formats = sorted(names.get(dtype, dtype.removeprefix("c10::").lower()) for dtype in dtypes)
    # Ops that read what was cast find it in the cache, or not: what they spend above their floor may go too.
    readers = [op for op in ledger.ops if op.where and op.where[0] in lines and op.name not in COPYING]
    yield Cause(
        saving=(0.4 * cost, 0.8 * cost, 1.15 * cost + sum(max(0.0, op.ns - op.floor_ns) for op in readers)),
        message=f"{duration(cost)} per step ({share(cost / ledger.wall)}) goes into casts between "
        f"{' and '.join(formats)}{', back and forth over the same shapes' if round_trip else ''}",
        advice="Cast once, where the tensor is made, and let the ops between work in one format.",
        where=costliest_line(casts),
        evidence={"casts": count(sum(op.calls for op in casts)), "time": time(cost), "lines": count(len(lines))},
    )


def _casts(op: OpGroup) -> bool:
    """copy_(target, source) between two floating formats; float64 is BRR101's."""
    if op.name != "aten::copy_" or len(op.shapes) < 2 or not op.shapes[0] or inside(op, OPTIMIZER):
        return False
    formats = set(op.dtypes[:2])
    return len(formats) == 2 and formats <= {*FLOATS, *EIGHT_BITS} - {"double"}


ALLOCATIONS = frozenset(f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "resize_", "as_strided_"))
NORMS = frozenset(f"aten::{name}" for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"))


@rule(
    "BRR210",
    "bandwidth",
    needs={"plain", "ops", "shapes"},
    remedies=("fold_batch_norm", "compile_frozen"),
    on_device=True,
)
def batch_norm_by_itself(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Inference whose batch norm scales what a convolution or a linear layer has just written: its weights could."""
    ill = list(_behind_layers(ledger)) if ledger.step.kind == "inference" else []
    spent = total(ill)
    if not ill or not worth_telling(ledger, 0.8 * spent):
        return
    calls = sum(op.calls for op in ill)
    yield Cause(
        # the layer's output is then still in the cache for what comes next
        saving=(0.5 * spent, 0.8 * spent, 1.2 * spent),
        message=f"{calls:.0f} batch norms take {duration(spent)} per step ({share(spent / ledger.wall)}) behind layers "
        "whose weights could hold them",
        advice="Fold them once, before inferring: torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn), or compile with "
        f"freezing on{', which wants torch.no_grad()' if graph_makers(ledger) else ''}.",
        where=costliest_line(ill),
        evidence={"batch_norm": time(spent), "layers": count(calls)},
        of=ill,
    )


def _behind_layers(ledger: Ledger) -> Iterator[OpGroup]:
    """Batch norms whose last op before them, in the order of first calls, that does any work is such a layer's."""
    behind = False
    for op in sorted(ledger.ops, key=lambda op: op.order):
        if op.phase != "forward":
            continue
        if op.name in NORMS:
            if behind:
                yield op
            behind = False
        elif op.name in CONVOLUTIONS | MATMULS:
            behind = True
        # Values of its own: batch_norm wraps the op that makes them, and memory is asked for without any.
        elif (made := kind(op)) not in ("view", "norm") and op.name not in ALLOCATIONS and (op.leaf or made):
            behind = False
