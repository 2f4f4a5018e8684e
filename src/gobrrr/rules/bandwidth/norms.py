"""BRR210: batch norm that infers in a pass of its own behind the layer that could hold it."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Finding, finding, rule
from gobrrr.rules.model.shapes import CONVOLUTIONS, MATMULS, costliest_line, kind, total
from gobrrr.units import duration, share

ALLOCATIONS = frozenset(f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "resize_", "as_strided_"))
NORMS = frozenset(f"aten::{name}" for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"))


@rule(
    "BRR210",
    "batch-norm-by-itself",
    "bandwidth",
    needs={"plain", "ops", "shapes"},
    remedies=("fold_batch_norm", "compile_frozen"),
    on_device=True,
)
def batch_norm_by_itself(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Inference whose batch norm scales what a convolution or a linear layer has just written: its weights could."""
    ill = list(_behind_layers(ledger)) if ledger.step.kind == "inference" else []
    spent = total(ill)
    if not ill or not worth_telling(ledger, 0.8 * spent):
        return
    calls = sum(op.calls for op in ill)
    yield finding(
        "BRR210",
        ledger,
        low=0.5 * spent,
        expected=0.8 * spent,
        ceiling=1.2 * spent,  # the layer's output is then still in the cache for what comes next
        message=f"{calls:.0f} batch norms take {duration(spent)} per step ({share(spent / ledger.wall)}) behind layers "
        "whose weights could hold them",
        advice="Fold them once, before inferring: torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn), or compile with "
        "freezing on.",
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
        elif _works(op):
            behind = False


def _works(op: OpGroup) -> bool:
    """Say whether it makes values of its own: batch_norm wraps the op that does, and memory is asked for without
    any."""
    known = kind(op)
    return known not in ("view", "norm") and op.name not in ALLOCATIONS and (op.leaf or known is not None)
