"""BRR109 and BRR110: matrix products on a GPU that leave its tensor cores idle or half fed. Never raised on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.devicemodel import DeviceLedger
from gobrrr.ledger.model import Ledger, OpGroup
from gobrrr.machine.model import Machine
from gobrrr.rules.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model import Finding, device_share, finding, off_the_step, rule
from gobrrr.rules.shapes import MATMULS, costliest_line, float_dtype, product_dims, total
from gobrrr.units import duration, share

# 16-bit operands are loaded 16 bytes at a time: dimensions in multiples of 8 (NVIDIA's matrix multiplication guide).
ALIGNMENT = 8
SIXTEEN_BITS = ("c10::Half", "c10::BFloat16")
TF32_SINCE = 8.0
"""Ampere: TF32 and bfloat16 in tensor cores."""
TENSOR_CORES_SINCE = 7.0
"""Compute capability of Volta, the first with tensor cores (TensorBoard's profiler plugin tests the same)."""


@rule(
    "BRR109",
    "misaligned-matrix-dimensions",
    "compute",
    needs={"ops", "shapes", "device"},
    remedies=("pad_vocabulary",),
    on_device=True,
)
def misaligned_dimensions(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """16-bit matrix products with a dimension that is no multiple of 8."""
    products = [op for op in ledger.ops if op.name in MATMULS and float_dtype(op) in SIXTEEN_BITS]
    odd = [op for op in products if _misaligned(op)]
    if not ledger.of_device or not odd:
        return
    cost, part = total(odd), total(odd) / max(total(products), 1.0)
    # cuBLAS 11 and newer use tensor cores at any size, "most efficiently" at multiples of 8: how much is lost is
    # a matter of the shape. nanoGPT reported 25 % of a step for a vocabulary of 50257 padded to 50304.
    if not worth_telling(ledger, 0.15 * cost):
        return
    worst = max(odd, key=lambda op: op.ns)
    dims = product_dims(worst) or (0, 0, 0)
    yield finding(
        "BRR109",
        ledger,
        low=0.0,
        expected=0.15 * cost,
        ceiling=0.5 * cost,
        message=f"{share(part)} of the time of 16-bit products goes into those with a dimension that is no multiple of "
        f"{ALIGNMENT}: "
        f"m, k, n = {dims[0]}, {dims[1]}, {dims[2]}",
        advice=f"Pad that dimension to the next multiple of {ALIGNMENT} (64 is better on A100 and newer).",
        where=worst.where,
        evidence={"misaligned_share": ratio(part), "kernel_time": time(cost), "shapes": count(len(odd))},
        confidence="inferred",
    )


def _misaligned(op: OpGroup) -> bool:
    dims = product_dims(op)
    return dims is not None and min(dims) >= ALIGNMENT and any(size % ALIGNMENT for size in dims)


@rule("BRR110", "tensor-cores-unused", "compute", needs={"device"}, remedies=("bf16_autocast", "float16_autocast"))
def tensor_cores_unused(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """fp32 kernels where tensor cores would do, on a device that has them, and none that uses them."""
    device = ledger.device
    if device is None or device.tensor_core_ns > 0 or device.tensor_core_eligible_ns <= 0:
        return
    if _capability(device) < TENSOR_CORES_SINCE:
        return
    eligible = device.tensor_core_eligible_ns
    freed = eligible * (1 - 1 / _gain(machine))
    if not worth_telling(ledger, expected := off_the_step(ledger, 0.6 * freed)):
        return
    products = [op for op in ledger.ops if op.name in MATMULS]
    yield finding(
        "BRR110",
        ledger,
        low=0.2 * freed * device_share(ledger),
        expected=expected,
        ceiling=off_the_step(ledger, eligible),
        message=f"{duration(eligible)} per step of fp32 kernels could use tensor cores, and none does",
        advice='Run under torch.autocast("cuda", dtype=torch.bfloat16), or allow TF32 for fp32 products.'
        if _capability(device) >= TF32_SINCE
        else 'Run under torch.autocast("cuda", dtype=torch.float16) with a GradScaler: these tensor cores have neither '
        "TF32 nor bfloat16.",
        where=costliest_line(products),
        evidence={
            "eligible_time": time(eligible),
            "tensor_core_time": time(0),
            "product_time_on_host": time(total(products)),
        },
        confidence="derived",
    )


def _capability(device: DeviceLedger) -> float:
    try:
        return float(device.capability)
    except ValueError:
        return 0.0


def _gain(machine: Machine) -> float:
    """How much faster this device's tensor cores are than its fp32 units; 2 where that was not measured."""
    measured = machine.device.matmul if machine.device else {}
    slow, fast = measured.get("fp32"), measured.get("bf16") or measured.get("tf32") or measured.get("fp16")
    return max(1.0, fast.median / slow.median) if slow and fast and slow.median else 2.0
