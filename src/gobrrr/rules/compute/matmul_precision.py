"""BRR101 to BRR104, BRR109 and BRR110: number formats of matrix products, against the ceilings of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.compile.recompiles import COMPILED
from gobrrr.rules.model.evidence import count, rate, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, device_share, off_the_step, rule
from gobrrr.rules.model.shapes import (
    CONVOLUTIONS,
    KEPT_WIDE,
    MATMULS,
    MODEL,
    costliest_line,
    factorises,
    float_dtype,
    has_dtype,
    num_elements,
    product_dims,
    total,
)
from gobrrr.units import duration, flop_rate, share

PRODUCTS = MATMULS | CONVOLUTIONS
"""Ops whose rate depends on the number format."""
# A format must promise this much: two runs of one step differ by up to 7 %, and casts eat a part of every gain.
WORTHWHILE = 1.3
# bf16 autocast made training steps 1.5 to 2.4 times faster where the ceilings of their products allowed 2.1 to 4.2:
# casts, and what stays in fp32, took the rest.
REALISED = 0.7
# Of what matrix units do, what may be left that leaves them alone: with more of it the same remedy is BRR110's.
HARDLY = 0.1
ASSIGNMENTS = frozenset({"aten::index_put_", "aten::index_copy_", "aten::index_add_"})
# Below this share of its time at the ceiling, something else than the format holds a product up.
COMPUTE_BOUND = 0.2


@dataclass(frozen=True)
class Gain:
    """Saving of another format, ns per step: at the rate these ops run at now, and at the new ceiling."""

    expected: float = 0.0
    ceiling: float = 0.0

    def __add__(self, other: Gain) -> Gain:
        return Gain(self.expected + other.expected, self.ceiling + other.ceiling)


def _work(op: OpGroup) -> float:
    return max(0.0, op.ns - op.dispatch_ns)


def _at_rate(op: OpGroup, now: float, then: float) -> Gain:
    """Its time shrinks as the ceilings do; at most to its FLOPs at the new ceiling."""
    work = _work(op)
    best = op.flops / then * 1e9 if op.flops else 0.0
    expected = work * (1 - now / then)
    return Gain(expected, max(expected, work - best))


@rule("BRR101", "compute", needs={"ops", "shapes"}, remedies=("float32",), on_device=True)
def float64_by_accident(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Ops on double tensors, whose products run at the fp64 ceiling and whose other ops move twice the bytes."""
    # A compiled function has hundreds of inputs: that one of them is double says nothing of its time.
    double = [op for op in ledger.ops if has_dtype(op, "double") and not op.name.startswith(COMPILED)]
    model = [op for op in double if op.phase != "data"]
    gain = sum((_gain_of_float32(op, machine, ledger.threads) for op in model), Gain())
    if not worth_telling(ledger, gain.expected):
        return
    chosen = "64" in (ledger.facts.settings.default_dtype or "")
    trained = any(o.num_elements and o.param_bytes == 8 * o.num_elements for o in ledger.facts.optimizers)
    yield Cause(
        saving=(0.4 * gain.expected, gain.expected, gain.ceiling),
        message=f"{duration(total(model))} per step ({share(total(model) / ledger.wall)}) is spent on float64 tensors"
        + (": the program sets float64 as default dtype" if chosen else ", which come in at this line")
        + (", and the parameters are float64 too" if trained and not chosen else ""),
        advice="Make model and data float32, both at once: without .double(), .to(torch.float64) and a default dtype."
        if trained
        else "Make the tensor float32 where it is created (numpy and Python numbers make float64).",
        where=_entry(double) or costliest_line(model),
        evidence={
            "time_in_float64": time(total(model)),
            "fp64_ceiling": rate(machine.flop_rate("fp64", ledger.threads) or 0),
            "fp32_ceiling": rate(machine.flop_rate("fp32", ledger.threads) or 0),
        },
    )


def _gain_of_float32(op: OpGroup, machine: Machine, threads: int) -> Gain:
    """Casts to and from double go away, products scale with the ceilings, other ops move half the bytes."""
    work = _work(op)
    if op.name == "aten::copy_" and has_dtype(op, "float"):
        return Gain(work, op.ns)
    now, then = machine.flop_rate("fp64", threads), machine.flop_rate("fp32", threads)
    if op.name in PRODUCTS and now and then and now < then:
        return _at_rate(op, now, then)
    # Half the bytes; a working set that then fits a cache gains more (cache against memory: 3x on one machine).
    return Gain(0.5 * work, 0.8 * work)


def _entry(double: list[OpGroup]) -> tuple[Span, ...]:
    """Where double first comes into the step; picking a sample from a double dataset is no entry."""
    picking = {"aten::index", "aten::select", "aten::slice", "aten::as_strided", "aten::index_select", "aten::unbind"}
    before = (op for op in double if op.phase in ("data", "forward", "loss", "other") and num_elements(op) >= 64)
    entries = [op for op in before if op.where and not (op.phase == "data" and op.name in picking)]
    return min(entries, key=lambda op: op.order).where if entries else ()


@rule("BRR102", "compute", needs={"ops", "shapes"}, remedies=("bf16_autocast", "matmul_precision"), on_device=True)
def fp32_where_bf16_is_faster(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """fp32 where bf16, measured here, is well above it: products on a CPU, all that autocast lowers on a GPU whose
    products take TF32 already. Not where the model factorises matrices: what products feed into that must stay positive
    definite."""
    if not any(factorises(op) for op in ledger.ops if op.phase in MODEL):
        yield from _on_cpu(ledger, machine) if ledger.device is None else _on_device(ledger, machine)


def _on_device(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Kernels of a device whose matrix units work in TF32: 16 bits halve the bytes of each and the time of a product,
    and so their floor. Where those units are left alone it is BRR110's."""
    now, then = machine.flop_rate("tf32", 1) or 0.0, machine.flop_rate("bf16", 1) or 0.0
    taken = ledger.device is not None and ledger.device.tensor_core_eligible_ns < HARDLY * ledger.device.tensor_core_ns
    if not (ledger.of_device and taken and 0 < WORTHWHILE * now <= then) or ledger.facts.settings.autocast:
        return
    ops = [op for op in ledger.ops if op.phase in MODEL and float_dtype(op) == "float" and op.name not in KEPT_WIDE]
    expected = 0.5 * sum(op.floor_ns for op in ops)
    if not worth_telling(ledger, expected):
        return
    yield Cause(
        saving=(0.4 * expected, expected, 0.75 * total(ops)),
        message=f"{duration(total(ops))} per step goes into fp32 kernels; bf16 would halve their bytes, and its "
        f"products reach {flop_rate(then)} here, TF32's {flop_rate(now)}",
        advice=_under_autocast("cuda", ledger, ops),
        where=costliest_line(ops),
        evidence={"time_in_fp32": time(total(ops)), "tf32_ceiling": rate(now), "bf16_ceiling": rate(then)},
        of=ops,
        vain=("matmul_precision",),
    )


def _on_cpu(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    threads = ledger.threads
    then = machine.flop_rate("bf16", threads) or 0.0
    ops = _held_up(ledger, PRODUCTS, lambda op: _fp32_rate(op, ledger, machine), then)
    gain = sum((_at_rate(op, _fp32_rate(op, ledger, machine), then) for op in ops), Gain())
    expected = REALISED * gain.expected
    if not worth_telling(ledger, expected):
        return
    moved = sum(_work(op) for op in ledger.ops if op.bound == "bandwidth" and op.phase in ("forward", "backward"))
    now = machine.flop_rate("fp32", threads) or 0.0
    yield Cause(
        saving=(0.4 * expected, expected, gain.ceiling + 0.5 * moved),
        message=f"{duration(total(ops))} per step goes into fp32 products at {flop_rate(now)} at most, "
        f"where this CPU does {flop_rate(then)} in bf16",
        advice=_under_autocast("cpu", ledger, ops),
        where=costliest_line(ops),
        evidence={"time_in_fp32_products": time(total(ops)), "fp32_ceiling": rate(now), "bf16_ceiling": rate(then)},
    )


@rule("BRR103", "compute", needs={"ops", "shapes"})
def half_without_hardware(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """fp16 or bf16 products on a CPU that computes them at less than half of its fp32 rate."""
    then = machine.flop_rate("fp32", ledger.threads)
    for name, dtype in (("fp16", "c10::Half"), ("bf16", "c10::BFloat16")):
        now = machine.flop_rate(name, ledger.threads)
        if ledger.device is not None or not now or not then or now >= then / 2:
            continue
        ops = [op for op in ledger.ops if op.name in PRODUCTS and has_dtype(op, dtype)]
        gain = sum((_at_rate(op, now, then) for op in ops), Gain())
        if not worth_telling(ledger, gain.expected):
            continue
        evidence = {
            f"time_in_{name}_products": time(total(ops)),
            f"{name}_ceiling": rate(now),
            "fp32_ceiling": rate(then),
        }
        yield Cause(
            saving=(0.5 * gain.expected, gain.expected, gain.ceiling),
            message=f"{duration(total(ops))} per step goes into {name} products at {flop_rate(now)} on this CPU: "
            f"{then / now:.1f} times slower than fp32",
            advice=f"Use float32 on this CPU, without autocast or a cast of the model: {name} has no hardware here.",
            where=costliest_line(ops),
            evidence=evidence,
        )


@rule("BRR104", "compute", needs={"ops", "shapes", "facts"}, remedies=("matmul_precision",))
def slow_fp32_library_path(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """fp32 products below what "medium" reaches here with an error of the same size: a slow library path."""
    threads = ledger.threads
    now, then = machine.flop_rate("fp32", threads) or 0.0, machine.flop_rate("fp32_medium", threads) or 0.0
    if ledger.device is not None or not machine.medium_is_fp32 or ledger.facts.settings.matmul_precision != "highest":
        return
    ops = _held_up(ledger, MATMULS, lambda _: now, then)
    gain = sum((_at_rate(op, now, then) for op in ops), Gain())
    expected = REALISED * gain.expected
    if not worth_telling(ledger, expected):
        return
    yield Cause(
        saving=(0.4 * expected, expected, gain.ceiling),
        message=f"{duration(total(ops))} per step goes into fp32 products at {flop_rate(now)} at most; precision "
        f'"medium" reaches {flop_rate(then)} here with about the same error',
        advice='Call torch.set_float32_matmul_precision("medium") at the start of the program.',
        where=costliest_line(ops),
        evidence={
            "time_in_fp32_products": time(total(ops)),
            "fp32_ceiling": rate(now),
            "fp32_medium_ceiling": rate(then),
            "error_ratio": ratio(machine.fp32_medium_error / machine.fp32_error),
        },
    )


def _under_autocast(device: str, ledger: Ledger, ops: list[OpGroup]) -> str:
    """A loss of one's own, label smoothing say, rounds in bfloat16 what torch's keeps in float32. An assignment by
    index casts nothing: torch refuses what a product gives there (each expert's tokens, say)."""
    in_loss = max(ops, key=lambda op: op.ns).phase == "loss"
    assigns = any(op.name in ASSIGNMENTS and op.phase == "forward" and has_dtype(op, "float") for op in ledger.ops)
    more = " Cast what is assigned by index: x[i] = y.to(x.dtype)." if assigns else ""
    what = "this line of the loss" if in_loss else "the forward"
    rest = "" if in_loss else ", the loss in float32"
    return f'Run {what} under torch.autocast("{device}", dtype=torch.bfloat16){rest}.{more}'


def _fp32_rate(op: OpGroup, ledger: Ledger, machine: Machine) -> float:
    """The fp32 ceiling this op runs under."""
    path = machine.fp32_path(ledger.facts.settings.matmul_precision, op.name in CONVOLUTIONS)
    return max(machine.flop_rate(each, ledger.threads) or 0.0 for each in ("fp32", path))


def _held_up(ledger: Ledger, names: frozenset[str], rate_of: Callable[[OpGroup], float], then: float) -> list[OpGroup]:
    """fp32 products whose own ceiling explains their time, and whose new ceiling is worth the change."""
    wide = (op for op in ledger.ops if op.name in names and float_dtype(op) == "float" and op.flops)
    faster = [op for op in wide if 0 < WORTHWHILE * rate_of(op) <= then]
    return [op for op in faster if (op.flops or 0.0) / rate_of(op) * 1e9 >= COMPUTE_BOUND * op.ns]


# 16-bit operands are loaded 16 bytes at a time: dimensions in multiples of 8 (NVIDIA's matrix multiplication guide).
ALIGNMENT = 8
SIXTEEN_BITS = ("c10::Half", "c10::BFloat16")
TF32_SINCE = 8.0
"""Ampere: TF32 and bfloat16 in tensor cores."""
TENSOR_CORES_SINCE = 7.0
"""Compute capability of Volta, the first with tensor cores (TensorBoard's profiler plugin tests the same)."""


@rule("BRR109", "compute", needs={"ops", "shapes", "device"}, remedies=("pad_vocabulary",), on_device=True)
def misaligned_matrix_dimensions(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """16-bit matrix products with a dimension that is no multiple of 8."""
    products = [op for op in ledger.ops if op.name in MATMULS and float_dtype(op) in SIXTEEN_BITS]
    sized = ((op, product_dims(op) or (0,)) for op in products)
    odd = [op for op, dims in sized if min(dims) >= ALIGNMENT and any(size % ALIGNMENT for size in dims)]
    if not ledger.of_device or not odd:
        return
    cost, part = total(odd), total(odd) / max(total(products), 1.0)
    # cuBLAS 11 and newer use tensor cores at any size, "most efficiently" at multiples of 8: how much is lost is
    # a matter of the shape. nanoGPT reported 25 % of a step for a vocabulary of 50257 padded to 50304.
    if not worth_telling(ledger, 0.15 * cost):
        return
    worst = max(odd, key=lambda op: op.ns)
    dims = product_dims(worst) or (0, 0, 0)
    yield Cause(
        saving=(0.0, 0.15 * cost, 0.5 * cost),
        message=f"{share(part)} of 16-bit product time is in products with a dimension that is no multiple of "
        f"{ALIGNMENT}: m, k, n = {dims[0]}, {dims[1]}, {dims[2]}",
        advice=f"Pad that dimension to the next multiple of {ALIGNMENT} (64 is better on A100 and newer).",
        where=worst.where,
        evidence={"misaligned_share": ratio(part), "kernel_time": time(cost), "shapes": count(len(odd))},
        confidence="inferred",
    )


@rule("BRR110", "compute", needs={"device"}, remedies=("bf16_autocast", "float16_autocast", "matmul_precision"))
def tensor_cores_unused(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
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
    gain = _gain(rates)
    freed = eligible * _share_held_up(products, rates) * (1 - 1 / gain)
    if not worth_telling(ledger, expected := off_the_step(ledger, 0.6 * freed)):
        return
    used, in_fp32 = device.tensor_core_ns, total(products)
    part = share(eligible / (eligible + used))
    # With bfloat16, float16, whose gradients must be scaled, has no use.
    vain = ["float16_autocast" if _capability(device) >= TF32_SINCE else "bf16_autocast"]
    if not _may_take_tf32(ledger, device):
        vain.append("matmul_precision")
    yield Cause(
        saving=(0.2 * freed * device_share(ledger), expected, off_the_step(ledger, eligible)),
        message=f"{duration(eligible)} per step of fp32 kernels could use tensor cores and do not"
        + (f", {part} of all that could" if used > 0 else "; none does")
        + (f" ({gain:.1f} times the rate here)" if "fp32" in rates else ""),
        advice=_advice(ledger, device),
        where=costliest_line(products or [op for op in ledger.ops if op.name in MATMULS]),
        evidence={"eligible_time": time(eligible), "tensor_core_time": time(used), "fp32_products": time(in_fp32)}
        | {f"{dtype}_ceiling": rate(flops) for dtype, flops in rates.items()},
        of=products,
        holds=eligible,
        both=True,
        vain=tuple(vain),
    )


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


def _share_held_up(products: list[OpGroup], rates: dict[str, float]) -> float:
    """Return the share of the products' time in those whose time their FLOPs explain: small ones take as long
    anyhow."""
    slow = rates.get("fp32")
    if not slow or not total(products) or not any(op.flops for op in products):
        return 1.0
    return total(op for op in products if (op.flops or 0.0) / slow * 1e9 >= COMPUTE_BOUND * op.ns) / total(products)
