"""BRR109 and BRR110: matrix products on a GPU that leave its tensor cores idle or half fed. Never raised on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.compute.matmul_precision import COMPUTE_BOUND
from gobrrr.rules.model.evidence import count, rate, ratio, time, worth_telling
from gobrrr.rules.model.finding import Finding, device_share, finding, off_the_step, rule, without
from gobrrr.rules.model.shapes import (
    CONVOLUTIONS,
    MATMULS,
    MODEL,
    costliest_line,
    factorises,
    float_dtype,
    product_dims,
    total,
)
from gobrrr.units import duration, flop_rate, share

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


@rule(
    "BRR110",
    "tensor-cores-unused",
    "compute",
    needs={"device"},
    remedies=("bf16_autocast", "float16_autocast", "matmul_precision"),
)
def tensor_cores_unused(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """fp32 kernels where tensor cores would do, on a device that has them; whatever else uses them. Not where the
    model factorises matrices, as of BRR102."""
    device = ledger.device
    if device is None or device.tensor_core_eligible_ns <= 0 or _capability(device) < TENSOR_CORES_SINCE:
        return
    if any(factorises(op) for op in ledger.ops if op.phase in MODEL):
        return
    rates = _rates(machine, device)
    products = [op for op in ledger.device_ops if op.name in MATMULS | CONVOLUTIONS and float_dtype(op) == "float"]
    eligible = device.tensor_core_eligible_ns
    freed = eligible * _held_up(products, rates) * (1 - 1 / _gain(rates))
    if not worth_telling(ledger, expected := off_the_step(ledger, 0.6 * freed)):
        return
    used = device.tensor_core_ns
    part = share(eligible / (eligible + used))
    found = finding(
        "BRR110",
        ledger,
        low=0.2 * freed * device_share(ledger),
        expected=expected,
        ceiling=off_the_step(ledger, eligible),
        message=f"{duration(eligible)} per step of fp32 kernels could use tensor cores, and "
        + (f"leave them alone: {part} of the time of all that could" if used > 0 else "none does")
        + _told(rates),
        advice=_advice(ledger, device),
        where=costliest_line(products or [op for op in ledger.ops if op.name in MATMULS]),
        evidence={
            "eligible_time": time(eligible),
            "tensor_core_time": time(used),
            "fp32_products": time(total(products)),
        }
        | {f"{dtype}_ceiling": rate(flops) for dtype, flops in rates.items()},
        of=products,
        holds=eligible,
        both=True,
    )
    has_bfloat16 = _capability(device) >= TF32_SINCE  # and then float16, whose gradients must be scaled, has no use
    found = without(found, "float16_autocast" if has_bfloat16 else "bf16_autocast")
    yield found if _may_take_tf32(ledger, device) else without(found, "matmul_precision")


def _may_take_tf32(ledger: Ledger, device: DeviceLedger) -> bool:
    """It has TF32, and the program has not allowed it yet."""
    allowed = ledger.facts.settings.matmul_precision in ("high", "medium")
    return _capability(device) >= TF32_SINCE and not allowed


def _advice(ledger: Ledger, device: DeviceLedger) -> str:
    if _capability(device) < TF32_SINCE:
        return (
            'Run under torch.autocast("cuda", dtype=torch.float16) with a GradScaler: these tensor cores have neither '
            "TF32 nor bfloat16."
        )
    autocast = 'torch.autocast("cuda", dtype=torch.bfloat16)'
    if not _may_take_tf32(ledger, device):
        return f"Run under {autocast}: TF32 is allowed for fp32 products, and these do not take it."
    return (
        'Call torch.set_float32_matmul_precision("high") at the start (TF32: fp32 tensors, products of 10 bits of '
        f"mantissa), or run under {autocast}."
    )


def _capability(device: DeviceLedger) -> float:
    try:
        return float(device.capability)
    except ValueError:
        return 0.0


def _rates(machine: Machine, device: DeviceLedger) -> dict[str, float]:
    """FLOP/s as measured on this very device, of fp32 and what its tensor cores can do instead; empty elsewhere."""
    here = machine.device
    if here is None or (here.name != device.name and device.name != "device"):
        return {}
    return {dtype: here.matmul[dtype].median for dtype in ("fp32", "tf32", "bf16", "fp16") if dtype in here.matmul}


def _gain(rates: dict[str, float]) -> float:
    """How much faster this device's tensor cores are than its fp32 units; 2 where that was not measured."""
    slow, fast = rates.get("fp32"), max((flops for dtype, flops in rates.items() if dtype != "fp32"), default=0.0)
    return max(1.0, fast / slow) if slow and fast else 2.0


def _held_up(products: list[OpGroup], rates: dict[str, float]) -> float:
    """Return the share of the products' time in those whose time their FLOPs explain: small ones take as long
    anyhow."""
    slow = rates.get("fp32")
    if not slow or not total(products) or not any(op.flops for op in products):
        return 1.0
    return total(op for op in products if (op.flops or 0.0) / slow * 1e9 >= COMPUTE_BOUND * op.ns) / total(products)


def _told(rates: dict[str, float]) -> str:
    names = {"tf32": "TF32", "bf16": "bfloat16"}
    fast = [f"{flop_rate(flops)} in {names[dtype]}" for dtype, flops in rates.items() if dtype in names]
    return (
        f" (measured here: {flop_rate(rates['fp32'])} in fp32, {', '.join(fast)})" if fast and "fp32" in rates else ""
    )
