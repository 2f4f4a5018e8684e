"""Measure what this computer really does: every ceiling, with its spread, in at most the time that is given.

Uses the standard library and torch alone, because it runs in the user's interpreter: the result is the plain values
of a Machine, which `store` checks and types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import perf_counter_ns
from typing import Any

from gobrrr.machine.measure import accelerator
from gobrrr.machine.measure.gauges import (
    PAGE_BLOCK,
    CoresGauge,
    Enter,
    FreshPages,
    copy_gauges,
    copy_sizes,
    cpu_matmuls,
    dispatch_gauge,
    fp32_errors,
    switches,
)
from gobrrr.machine.measure.sampling import Budget, Clock, Gauge, Setting, collect, summarise
from gobrrr.machine.model.doubts import doubts_of
from gobrrr.machine.probe.system_probe import Hardware
from gobrrr.system.quiet import busy_cores

SECONDS = 17.0
"""Seconds of measuring, out of the 20 s that the whole may take, the import of torch included: the rest is for starting
Python twice, and for the last sample, which may overdraw. A quiet machine is steady after half of it."""

Notify = Callable[[str], object]
_HARDWARE = ("cpu", "isa", "logical_cores", "usable_cores", "memory_bytes", "caches", "max_mhz", "governor", "quota")
"""Fields that a Machine has as its Hardware has them."""


def measure(
    torch: Any, hardware: Hardware, seconds: float = SECONDS, clock: Clock = perf_counter_ns,
    notify: Notify = lambda text: None, only: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Measure every ceiling within `seconds` and return the fields of a Machine, without its fingerprint.

    `only`: keys of the figures to measure again; the others then have no samples.

    "All" threads are those that torch takes by default, but no more than the affinity and quota allow: beyond that
    a quota only throttles. Thread count, precision, grad mode and random streams are left as they were found.
    """
    load = busy_cores()
    budget = Budget(seconds, clock)
    threads = max(1, min(torch.get_num_threads(), hardware.usable_cores))
    with switches(torch) as enter, CoresGauge(hardware.usable_cores, clock) as cores:
        notify("finding sizes")
        gauges = _gauges(torch, hardware, threads, enter, budget, cores)
        errors = fp32_errors(torch, enter, threads)
        notify(f"measuring {len(gauges)} ceilings in turn")
        samples = collect([gauge for gauge in gauges if not only or gauge.key in only], enter, budget)
    figures = {gauge.key: summarise(samples.get(gauge.key, []), gauge.kind, gauge.unit) for gauge in gauges}
    return {
        **{name: getattr(hardware, name) for name in _HARDWARE},
        "threads": threads,
        "torch_version": str(torch.__version__),
        "effective_cores": figures["cores"],
        "dispatch": figures["dispatch"],
        "fresh_page": figures["page"],
        "matmul": _matmul(figures, threads),
        "copy": _copies(figures),
        "fp32_error": errors[0],
        "fp32_medium_error": errors[1],
        "device": accelerator.ceilings(torch, figures),
        "doubts": doubts_of(figures, hardware.memory_bytes),
        "seconds": budget.spent,
        "other_load": load,
    }


def _gauges(
    torch: Any, hardware: Hardware, threads: int, enter: Enter, budget: Budget, cores: CoresGauge
) -> list[Gauge]:
    """All gauges, those that a Machine cannot lack first, so that a tight budget still gets them."""
    sizes = copy_sizes(hardware.memory_bytes, max(hardware.caches.values(), default=0))
    block = min(PAGE_BLOCK, max(1 << 20, hardware.memory_bytes // 32))
    enter(Setting(1))
    gauges: list[Gauge] = [cores, dispatch_gauge(torch, budget.clock), FreshPages(torch, block, threads)]
    gauges += cpu_matmuls(torch, threads, enter, budget)
    gauges += copy_gauges(torch, sizes, threads, enter, budget)
    return gauges + accelerator.gauges(torch, enter, budget)


def _matmul(figures: dict[str, dict[str, Any]], threads: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"1": {}, "all": {}}
    for key, figure in figures.items():
        kind, *rest = key.split("/")
        if kind == "matmul" and rest[0] in found and figure["count"]:
            found[rest[0]][rest[1]] = figure
    return found if threads > 1 else {"1": found["1"], "all": found["1"]}


def _copies(figures: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for key, figure in figures.items():
        if key.startswith("copy/") and figure["count"]:
            _, threads, size = key.split("/")
            found.append({"working_set": int(size), "threads": int(threads), "rate": figure})
    return found
