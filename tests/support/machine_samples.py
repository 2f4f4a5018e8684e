"""A Machine with every figure set by hand, quiet and plausible: an AMD processor with an H100."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gobrrr.machine.measure import store
from gobrrr.machine.model.machine import CopyCeiling, DeviceCeilings, Machine, Measured
from gobrrr.machine.probe.fingerprint import fingerprint
from gobrrr.machine.probe.system_probe import probe


def figure(median: float, unit: str, spread: float = 0.05) -> Measured:
    return Measured(median, median * (1 - spread / 2), median * (1 + spread / 2), 8, unit)


def products(**rates: float) -> dict[str, Measured]:
    return {dtype: figure(rate * 1e9, "FLOP/s") for dtype, rate in rates.items()}


ONE = {"fp64": 50.0, "fp32": 102.0, "fp32_medium": 217.0, "bf16": 440.0, "fp16": 0.3, "int8": 940.0}
DEVICE = DeviceCeilings(
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=80 << 30,
    matmul=products(fp32=50e3, tf32=400e3, bf16=700e3),
    copy=figure(2.9e12, "B/s"),
    launch=figure(4500, "ns"),
    pinned=figure(50e9, "B/s"),
    pageable=figure(11e9, "B/s"),
    capability="9.0",
)


def machine(**changes: object) -> Machine:
    """The processor alone, with fields changed as asked."""
    fields: dict[str, object] = {
        "fingerprint": "0123456789abcdef",
        "cpu": "AMD EPYC Example",
        "isa": ("avx2", "avx512_bf16"),
        "logical_cores": 2,
        "usable_cores": 2,
        "memory_bytes": 24 << 30,
        "effective_cores": figure(1.95, "cores"),
        "matmul": {"1": products(**ONE), "all": products(**{name: 2 * rate for name, rate in ONE.items()})},
        "copy": tuple(
            CopyCeiling(working_set, threads, figure(rate * threads, "B/s"))
            for working_set, rate in ((1 << 16, 100e9), (1 << 20, 90e9), (256 << 20, 20e9))
            for threads in (1, 2)
        ),
        "dispatch": figure(1000.0, "ns"),
        "fresh_page": figure(500.0, "ns"),
        "fp32_error": 2.5e-7,
        "fp32_medium_error": 5.7e-7,
        "threads": 2,
        "torch_version": "2.13.0+cpu",
        **changes,
    }
    return Machine(**fields)  # type: ignore[arg-type]


def keep_ceilings(folder: Path, environ: Mapping[str, str]) -> None:
    """Put made-up ceilings where a process with this environment looks for those of the machine that this is."""
    mark = fingerprint(probe(), store.torch_version(sys.executable), environ)
    (folder / f"machine-{mark}.json").write_bytes(msgspec.json.encode(machine(fingerprint=mark)))
