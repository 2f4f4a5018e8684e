"""Where and with what a benchmark ran: the head of every result file."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

import torch

import gobrrr
from gobrrr.machine.probe.system_probe import probe


def stamp() -> dict[str, Any]:
    """Date, processor, cores, load, and the versions that matter."""
    chip = probe()
    units = [name.upper() for name in ("avx512_bf16", "amx_bf16") if name in chip.isa]  # one name, two chips
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": " ".join([torch.backends.cpu.get_cpu_capability(), *units, chip.cpu]),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gobrrr": gobrrr.__version__,
    }
