"""Measure what a CUDA or ROCm device does: adds gauges to those of the processor and takes nothing away.

torch names both kinds of device "cuda". Only the current device is measured: those of one machine are taken as alike.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gobrrr.machine.measure.gauges import PRECISIONS, SIZES, Enter, matmul_gauge, repeating, waiting
from gobrrr.machine.measure.sampling import Budget, Gauge, Repeated, Setting, calls_for, summarise

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "int8")
TRANSFER_BYTES = 64 << 20
"""Large enough that the fixed cost of a transfer (about 10 us) is under 1 % at 60 GB/s."""
COPY_BYTES = 512 << 20
"""Source of the device copy: twice the largest last-level cache of any device so far (256 MB, MI300X)."""
MAX_LAUNCHES = 500
"""Half of the 1,024 launches that a queue holds; when it is full the host waits, and the cost is not its own."""


def gauges(torch: Any, enter: Enter, budget: Budget) -> list[Gauge]:
    """The device's gauges; none without a device, or with one that fails at its first use."""
    if not torch.cuda.is_available():
        return []
    found: list[Gauge] = []
    try:
        found += _transfers(torch, budget)
        found.append(_launches(torch))
        for dtype in DTYPES:
            setting = Setting(torch.get_num_threads(), PRECISIONS.get(dtype, "highest"))
            enter(setting)
            wait = torch.cuda.synchronize
            gauge = matmul_gauge(torch, f"matmul/device/{dtype}", dtype, setting, budget.clock, SIZES[3:], "cuda", wait)
            found += [gauge] if gauge is not None else []
    except RuntimeError:
        return []  # a device that is full, exclusive or broken: the processor's ceilings still stand
    return found


def ceilings(torch: Any, figures: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The fields of DeviceCeilings, taking the device's matrix products out of the figures; None without a device."""
    if "device/launch" not in figures:
        return None
    nothing = summarise((), "rate", "B/s")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    products = {key.rpartition("/")[2]: figure for key, figure in figures.items() if key.startswith("matmul/device/")}
    return {
        "name": str(properties.name),
        "memory_bytes": int(properties.total_memory),
        "matmul": {dtype: figure for dtype, figure in products.items() if figure["count"]},
        "copy": figures.get("device/copy", nothing),
        "launch": figures["device/launch"],
        "pinned": figures.get("device/pinned", nothing),
        "pageable": figures.get("device/pageable", nothing),
        "capability": f"{properties.major}.{properties.minor}",
    }


def _launches(torch: Any) -> Repeated:
    """The host's cost of one launch: adds of one element, the device's own time not waited for."""
    one = torch.ones(1, device="cuda")
    out = torch.empty(1, device="cuda")

    def run(calls: int) -> None:
        for _ in range(calls):
            torch.add(one, one, out=out)

    run(1)
    torch.cuda.synchronize()
    setting = Setting(torch.get_num_threads())
    return Repeated("device/launch", "ns", run, MAX_LAUNCHES, setting, settle=torch.cuda.synchronize)


def _transfers(torch: Any, budget: Budget) -> list[Repeated]:
    """Host to device from pinned and from pageable memory (bytes moved), and within the device (read plus written)."""
    free, _ = torch.cuda.mem_get_info()
    source = torch.ones(min(COPY_BYTES, free // 8), dtype=torch.uint8, device="cuda")
    inside, target = torch.empty_like(source), source[:TRANSFER_BYTES]
    pageable = torch.ones(target.numel(), dtype=torch.uint8)
    copies = (
        ("pinned", target, pageable.pin_memory(), 1),
        ("pageable", target, pageable, 1),
        ("copy", inside, source, 2),
    )
    found = []
    for key, into, of, passes in copies:
        run = waiting(repeating(partial(into.copy_, of, non_blocking=True)), torch.cuda.synchronize)
        run(1)
        calls, setting = calls_for(run, budget.clock, most=MAX_LAUNCHES), Setting(torch.get_num_threads())
        found.append(Repeated(f"device/{key}", "B/s", run, calls, setting, float(passes * of.numel())))
    return found
