"""Where and with what a benchmark ran: the head of every result file."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

import torch

import gobrrr
from gobrrr.machine.probe import probe


def stamp() -> dict[str, Any]:
    """Date, processor, cores, load, and the versions that matter."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": " ".join([torch.backends.cpu.get_cpu_capability(), *_bf16_units(), probe().cpu]),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gobrrr": gobrrr.__version__,
    }


def _bf16_units() -> list[str]:
    """What of it computes in bf16: two chips of one name differ by it."""
    return [name.upper() for name in ("avx512_bf16", "amx_bf16") if name in probe().isa]
