"""Ratios of the ceilings that decide which remedy pays on this machine, as sentences."""

from __future__ import annotations

from gobrrr import units
from gobrrr.machine.model.machine import Machine, Measured
from gobrrr.machine.model.peaks import peak_of

WORTH_SAYING = 1.1
"""Ratios nearer to 1 than this drown in the spread of a quiet machine (5 to 14 %)."""


def insights(machine: Machine) -> tuple[str, ...]:
    """Sentences, the most general first; those for which a figure is missing are left out."""
    found = (
        _cores(machine),
        *(_dtype(machine, dtype) for dtype in ("fp32_medium", "bf16", "fp16", "int8", "fp64")),
        _ridge(machine),
        _pages(machine),
        _dispatch(machine),
        _device(machine),
    )
    return tuple(text for text in found if text)


def ratio(machine: Machine, dtype: str, to: str = "fp32") -> float | None:
    """How many times faster one dtype's matrix product is than another's at all threads; None if either is missing."""
    one, other = (machine.flop_rate(name, machine.threads) for name in (dtype, to))
    return one / other if one and other else None


def _certain(machine: Machine, dtype: str) -> bool:
    """Whether the quartiles of a dtype's product and fp32's are apart."""
    products = machine.matmul.get("all") or machine.matmul.get("1", {})
    one, other = products.get(dtype), products.get("fp32")
    return one is not None and other is not None and (one.low > other.high or one.high < other.low)


def _times(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 9.95 else f"{factor:.1f}x"


def _cores(machine: Machine) -> str:
    got, seen = machine.effective_cores.median, machine.usable_cores or machine.logical_cores
    if not got or got >= 0.9 * seen:
        return ""
    return f"{seen} cores are there, but parallel work gets {got:.1f}: more threads or workers than that only compete."


def _dtype(machine: Machine, dtype: str) -> str:
    factor = ratio(machine, dtype)
    if factor is None or 1 / WORTH_SAYING < factor < WORTH_SAYING or not _certain(machine, dtype):
        return ""
    name = 'fp32 under set_float32_matmul_precision("medium")' if dtype == "fp32_medium" else dtype
    said = f"{_times(factor)} as fast as" if factor > 1 else f"{_times(1 / factor)} slower than"
    return f"{name}: {said} fp32{_accuracy(machine) if dtype == 'fp32_medium' else ''}."


def _accuracy(machine: Machine) -> str:
    errors = f"{machine.fp32_medium_error:.1e} against {machine.fp32_error:.1e}"
    return f", {'the same accuracy' if machine.medium_is_fp32 else 'at a lower accuracy'} (relative error {errors})"


def _ridge(machine: Machine) -> str:
    """The arithmetic intensity below which memory binds, per dtype."""
    largest = max((copy.working_set for copy in machine.copy), default=0)
    rates = {dtype: machine.flop_rate(dtype, machine.threads) for dtype in ("fp32", "bf16")}
    points = [
        f"{rate / machine.byte_rate(largest, machine.threads):.0f} ({dtype})" for dtype, rate in rates.items() if rate
    ]
    if not largest or not points:
        return ""
    return f"Below {' or '.join(points)} FLOP per byte of main memory, memory is what binds."


def _pages(machine: Machine) -> str:
    """A fresh page against reading and writing as much memory that is there already."""
    largest = max((copy.working_set for copy in machine.copy), default=0)
    if not machine.fresh_page.median or not largest:
        return ""
    warm = 4096 / machine.byte_rate(largest, machine.threads) * 1e9
    fresh = machine.fresh_page.median
    return (
        f"A fresh 4 KiB page costs {units.duration(fresh)}, copying one that is there {units.duration(warm)}: "
        f"large tensors that are allocated anew each time pay {_times(1 + fresh / warm)}."
    )


def _dispatch(machine: Machine) -> str:
    rate = _rate(machine.dispatch)
    return f"Python can start {rate:,.0f} small ops per second." if rate else ""


def _rate(measured: Measured) -> float:
    return 1e9 / measured.median if measured.median else 0.0


def _device(machine: Machine) -> str:
    """The share of the data sheet's bf16 or fp16 peak that a plain product reaches."""
    peak = peak_of(machine.device.name) if machine.device else None
    if machine.device is None or peak is None:
        return ""
    for dtype in ("bf16", "fp16", "fp32"):
        reached, sheet = machine.device.matmul.get(dtype), peak.flop_rate(dtype)
        if reached and sheet:
            share = units.share(reached.median / sheet)
            return f"{dtype} products reach {share} of {units.flop_rate(sheet)} ({peak.label})."
    return ""
