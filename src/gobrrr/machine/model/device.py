"""An accelerator as a Machine: what prices and rules ask of a processor, answered for the device of a trace."""

from __future__ import annotations

import msgspec

from gobrrr.machine.model.machine import CopyCeiling, Machine, Measured
from gobrrr.machine.model.peaks import peak_of
from gobrrr.machine.model.unknown import UNKNOWN

ANY_SIZE = 1 << 62  # bytes: larger than any copy, so that one rate stands for all sizes


def of_device(name: str, machine: Machine) -> Machine | None:
    """Return the figures measured on this device, or those of its data sheet; None where neither is known.

    `fingerprint` says where the figures come from. `fp32_medium` is TF32's rate, as torch's precision "high" takes it;
    an op costs the host's dispatch, which is not the device's, so that is nothing here.
    """
    device = machine.device
    peak = peak_of(name)
    rates = {dtype: rate for dtype in peak.tflops if (rate := peak.flop_rate(dtype))} if peak else {}
    if device is not None and device.name == name and device.matmul:
        rates |= {dtype: figure.median for dtype, figure in device.matmul.items()}  # fp8 has no gauge
        return _machine(name, rates, device.copy.median, "measured there")
    return _machine(name, rates, peak.byte_rate, peak.label) if peak else None


def _machine(name: str, rates: dict[str, float], byte_rate: float, source: str) -> Machine:
    ceilings = {dtype: _figure(rate, "FLOP/s") for dtype, rate in rates.items()}
    ceilings["fp32_medium"] = ceilings.get("tf32", ceilings.get("fp32", _figure(0.0, "FLOP/s")))
    copy = CopyCeiling(ANY_SIZE, 1, _figure(byte_rate, "B/s"))
    return msgspec.structs.replace(
        UNKNOWN, fingerprint=source, cpu=name, matmul={"1": ceilings, "all": ceilings}, copy=(copy,)
    )


def _figure(value: float, unit: str) -> Measured:
    return Measured(value, value, value, 1, unit)
