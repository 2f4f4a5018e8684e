"""What a call runs on: the device, its size, and the interpreter's environment for what it starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.stamp import stamp

ROOT = Path(__file__).resolve().parents[2]
NO_DEVICE = "-1"
"""What CUDA and ROCm both take for none."""


class Setting(NamedTuple):
    """`device`: cuda (ROCm calls itself so too) or cpu."""

    device: str
    tiny: bool

    @property
    def real(self) -> bool:
        """Whether its figures are worth a result file and a score."""
        return self.device != "cpu" and not self.tiny

    @property
    def name(self) -> str:
        """As the driver says it."""
        return torch.cuda.get_device_name() if self.device != "cpu" else "CPU"

    def prepare(self) -> None:
        """Put into this process's environment what the programs read; its children inherit it. On a CPU they see no
        device, though there be one."""
        places = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {"DEVICE": self.device, "PYTHONPATH": os.pathsep.join(places), "HF_HUB_OFFLINE": "1"}
        if self.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = NO_DEVICE
        os.environ.pop("TINY", None)
        if self.tiny:
            os.environ["TINY"] = "1"

    def head(self) -> dict[str, Any]:
        """The head of a result file."""
        there = torch.cuda.get_device_properties(0) if self.device != "cpu" else None
        return {
            **stamp(), "device": self.name, "driver": driver() if there else "", "tiny": self.tiny,
            "device_memory": there.total_memory if there else None,
            "runtime": torch.version.cuda or torch.version.hip or "",
        }  # fmt: skip

    @property
    def on(self) -> str:
        """What a row is valid for: another device, torch or gobrrr makes it anew."""
        known = stamp()
        return f"{self.name}{' tiny' if self.tiny else ''}, torch {known['torch']}, gobrrr {known['gobrrr']}"


def driver() -> str:
    """The driver's version; empty where nobody says."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split("\n")[0].strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
