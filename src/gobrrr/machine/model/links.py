"""Data-sheet rates of the links between devices: one direction, bytes per second, never measured here.

Sheets print both directions together, of all links of a device: half of that is what it can send. Which link a
collective takes no data sheet knows: within a host the fastest that there is, between hosts a network.
"""

from __future__ import annotations

import re

import msgspec

NETWORK = (12.5e9, 50e9)
"""Bytes per second of one network adapter per device, 100 to 400 Gb/s (NVIDIA ConnectX-6 and ConnectX-7 data sheets):
the range that is usual between hosts."""

FAR = 0.1
"""Share of the data sheet's rate below which something else carries the bytes, the host's memory or a network
(proposed; nccl-tests reaches 0.7 and more over NVLink with large messages)."""
LARGE = 4 << 20
"""Bytes per call from which the link and no latency should bound it: with 20 us before its first byte an all-reduce of
eight ranks still reaches 0.45 of 450 GB/s (proposed)."""
ABOVE = 1.05
"""Share of the data sheet's rate above which the sizes or the link are not what the file says."""


class Link(msgspec.Struct, frozen=True):
    """A device's link to its neighbours in the same host."""

    name: str
    rate: float
    """Bytes per second, one direction, all links of the device together."""
    source: str
    bridge: float = 0.0
    """Bytes per second of the bridge that joins a card to another: sold apart, and no trace tells of it."""

    def carries(self, bus_rate: float) -> bool:
        """Say whether the link can carry a rate: above the sheet's, a count is wrong."""
        return bus_rate <= ABOVE * max(self.rate, self.bridge)


_LINKS = (
    (r"(Tesla )?V100-(SXM[23]|DGXS).*", Link("NVLink 2", 150e9, "NVIDIA V100 Tensor Core GPU data sheet")),
    (r"(Tesla )?V100S?-PCIE.*", Link("PCIe 3.0", 16e9, "NVIDIA V100 Tensor Core GPU data sheet")),
    (r"(Tesla )?T4", Link("PCIe 3.0", 16e9, "NVIDIA T4 Tensor Core GPU data sheet")),
    (r"A100-SXM4?-[48]0GB|A100-PG509-200", Link("NVLink 3", 300e9, "NVIDIA A100 Tensor Core GPU data sheet")),
    (r"A100-PCIE-[48]0GB|A100 80GB PCIe", Link("PCIe 4.0", 32e9, "NVIDIA A100 Tensor Core GPU data sheet", 300e9)),
    (r"A10", Link("PCIe 4.0", 32e9, "NVIDIA A10 Tensor Core GPU data sheet")),
    (r"L4", Link("PCIe 4.0", 32e9, "NVIDIA L4 Tensor Core GPU data sheet")),
    (r"L40S", Link("PCIe 4.0", 32e9, "NVIDIA L40S GPU data sheet")),
    (r"(GeForce )?RTX 3090", Link("PCIe 4.0", 32e9, "NVIDIA Ampere GA102 GPU architecture white paper", 56.25e9)),
    (r"(GeForce )?RTX 4090", Link("PCIe 4.0", 32e9, "NVIDIA Ada GPU architecture white paper")),
    (r"H100 80GB HBM3", Link("NVLink 4", 450e9, "NVIDIA H100 Tensor Core GPU data sheet")),
    (r"H100 (PCIe|NVL)", Link("PCIe 5.0", 64e9, "NVIDIA H100 Tensor Core GPU data sheet", 300e9)),
    (r"H200", Link("NVLink 4", 450e9, "NVIDIA H200 Tensor Core GPU data sheet")),
    (r"H200 NVL", Link("PCIe 5.0", 64e9, "NVIDIA H200 Tensor Core GPU data sheet", 450e9)),
    (r"G?B200", Link("NVLink 5", 900e9, "NVIDIA Blackwell Architecture technical brief")),
    (r"MI300X( OAM| VF)?", Link("Infinity Fabric", 448e9, "AMD Instinct MI300X data sheet")),
    (r"MI325X( OAM| VF)?", Link("Infinity Fabric", 448e9, "AMD Instinct MI325X data sheet")),
)


def link_of(device: str) -> Link | None:
    """The data sheet's link of a device by the name that CUDA or ROCm report, of a card its slot; None if unknown."""
    bare = re.sub(r"^(NVIDIA|AMD Instinct|AMD) ", "", device.strip())
    return next((link for names, link in _LINKS if re.fullmatch(names, bare)), None)


def far_below(link: Link, bus_rate: float) -> bool:
    """Say whether the best that large calls reach leaves a link idle that is there."""
    return 0 < bus_rate < FAR * link.rate
