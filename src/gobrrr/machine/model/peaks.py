"""Data-sheet peaks: dense FLOP/s per dtype and memory bandwidth, never measured here.

A peak is a label beside a measured ceiling, or a stand-in for the machine of someone else's trace; it is never a
ceiling itself. Figures "with sparsity" are halved back to dense. Matrix units are meant wherever the device has them
for the dtype (fp64 on A100, H100, B200 and MI; everything from tf32 down), vector units otherwise; fp16 and bf16
accumulate in fp32, as torch does. A device is what torch calls one: an MI250 card is two of them, so half its sheet.
"""

from __future__ import annotations

import re

import msgspec

from gobrrr.machine.model.machine import UNKNOWN, CopyCeiling, Machine, Measured


class Peak(msgspec.Struct, frozen=True):
    """A data sheet's line: `tflops[dtype]` in 1e12 dense operations per second, `gigabytes` in 1e9 bytes per second."""

    names: str
    """Pattern of the whole name as CUDA or ROCm report it."""
    tflops: dict[str, float]
    gigabytes: float
    source: str

    def flop_rate(self, dtype: str) -> float | None:
        """Data-sheet FLOP/s (dense) for a dtype key of Machine.matmul or fp8; None where the sheet has no such unit."""
        rate = self.tflops.get("fp32" if dtype == "fp32_medium" else dtype)
        return None if rate is None else rate * 1e12

    @property
    def byte_rate(self) -> float:
        """Data-sheet memory bandwidth in bytes per second."""
        return self.gigabytes * 1e9

    @property
    def label(self) -> str:
        """How a report must name the figures."""
        return f"data sheet, not measured: {self.source}"


_COLUMNS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")


def _row(names: str, rates: tuple[float | None, ...], gigabytes: float, source: str) -> Peak:
    tflops = {dtype: rate for dtype, rate in zip(_COLUMNS, rates, strict=True) if rate is not None}
    return Peak(names, tflops, gigabytes, source)


_SHEET = "NVIDIA {} Tensor Core GPU data sheet".format
_V100, _A100 = _SHEET("V100"), _SHEET("A100")
_L4, _H100, _H200 = (f"{_SHEET(name)}, sparse figures halved" for name in ("L4", "H100", "H200"))
_GH200 = "NVIDIA GH200 Grace Hopper Superchip data sheet, sparse figures halved"
_TURING = "NVIDIA Turing GPU architecture white paper, fp32 accumulation"
_AMPERE = "NVIDIA Ampere GA102 GPU architecture white paper"
_ADA = "NVIDIA Ada GPU architecture white paper, fp32 accumulation"
_BLACKWELL = "NVIDIA Blackwell Architecture technical brief, dense figures per GPU"
_CDNA2 = "AMD Instinct MI200 series data sheet, per die: half of the card"
_AMD = "AMD Instinct {} data sheet".format

# columns:  fp64   fp32   tf32   bf16    fp16    fp8     int8; None: no such unit
_GA100 = (19.5, 19.5, 156, 312, 312, None, 624)
_GH100 = (67, 67, 494.7, 989.4, 989.4, 1978.9, 1978.9)
_NVL = (60, 60, 417.5, 835.5, 835.5, 1670.5, 1670.5)
_CDNA3 = (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9)
PEAKS: tuple[Peak, ...] = (
    _row(r"(Tesla )?V100-(SXM[23]|DGXS).*", (7.8, 15.7, None, None, 125, None, None), 900, _V100),
    _row(r"(Tesla )?V100-PCIE.*", (7.0, 14.0, None, None, 112, None, None), 900, _V100),
    _row(r"(Tesla )?V100S-PCIE.*", (8.2, 16.4, None, None, 130, None, None), 1134, _V100),
    _row(r"(Tesla )?T4", (0.254, 8.1, None, None, 65, None, 130), 320, _SHEET("T4")),
    _row(r"A100-(SXM4|SXM|PCIE)-40GB|A100-PG509-200", _GA100, 1555, _A100),
    _row(r"A100-(SXM4|SXM)-80GB", _GA100, 2039, _A100),
    _row(r"A100 80GB PCIe|A100-PCIE-80GB", _GA100, 1935, _A100),
    _row(r"A10", (0.976, 31.2, 62.5, 125, 125, None, 250), 600, _SHEET("A10")),
    _row(r"L4", (0.473, 30.3, 60, 121, 121, 242.5, 242.5), 300, _L4),
    _row(r"L40S", (1.43, 91.6, 183, 362.05, 362.05, 733, 733), 864, "NVIDIA L40S GPU data sheet"),
    _row(r"(GeForce )?RTX 3090", (0.556, 35.6, 35.6, 71, 71, None, 284), 936, _AMPERE),
    _row(r"(GeForce )?RTX 4090", (1.29, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6), 1008, _ADA),
    _row(r"(GeForce )?RTX 4080", (0.761, 48.7, 48.7, 97.5, 97.5, 194.9, 389.9), 716.8, _ADA),
    _row(r"(GeForce )?RTX 4060", (0.236, 15.1, 15.1, 30.2, 30.2, 60.5, 121), 272, _ADA),
    _row(r"(GeForce )?RTX 2080 Ti", (0.42, 13.4, None, None, 53.8, None, 215.2), 616, _TURING),
    _row(r"H100 80GB HBM3", _GH100, 3350, _H100),
    _row(r"H100 PCIe", (51, 51, 378, 756, 756, 1513, 1513), 2000, _H100),
    _row(r"H100 NVL", _NVL, 3900, _H100),
    _row(r"H200", _GH100, 4800, _H200),
    _row(r"H200 NVL", _NVL, 4800, _H200),
    _row(r"H800", (1, *_GH100[1:]), 3350, f"{_H100}; fp64 of the H800"),
    _row(r"GH200 480GB", _GH100, 4000, _GH200),
    _row(r"B200", (40, 80, 1100, 2250, 2250, 4500, 4500), 8000, _BLACKWELL),
    _row(r"GB200", (45, 90, 1250, 2500, 2500, 5000, 5000), 8000, _BLACKWELL),
    _row(r"MI210", (45.3, 45.3, None, 181, 181, None, 181), 1638, _AMD("MI210")),
    # MI250X and MI250 cards can both report "MI250X/MI250" or "MI250X / MI250": then the lesser of the two counts.
    _row(r"MI250X", (47.85, 47.85, None, 191.5, 191.5, None, 191.5), 1638, _CDNA2),
    _row(r"MI250|MI250X ?/ ?MI250", (45.25, 45.25, None, 181.05, 181.05, None, 181.05), 1638, _CDNA2),
    _row(r"MI300X( OAM| VF)?", _CDNA3, 5300, _AMD("MI300X")),
    _row(r"MI325X( OAM| VF)?", _CDNA3, 6000, _AMD("MI325X")),
    _row(r"MI350X( OAM| VF)?", (72.1, 144.2, None, 2306.9, 2306.9, 4613.7, 4613.7), 8000, _AMD("MI350X")),
    _row(r"MI355X( OAM| VF)?", (78.6, 157.3, None, 2516.6, 2516.6, 5033.2, 5033.2), 8000, _AMD("MI355X")),
)


def peak_of(name: str) -> Peak | None:
    """The data sheet of a device by the name that CUDA or ROCm report; None when unknown or only a part (MIG)."""
    bare = re.sub(r"^(NVIDIA|AMD Instinct|AMD) ", "", name.strip())
    return next((peak for peak in PEAKS if re.fullmatch(peak.names, bare)), None)


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
