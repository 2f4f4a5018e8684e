"""Where and with what a benchmark ran: the head of every result file."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

import torch

import gobrrr


def stamp() -> dict[str, Any]:
    """Date, processor, cores, load, and the versions that matter."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": torch.backends.cpu.get_cpu_capability() + " " + _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gobrrr": gobrrr.__version__,
    }


def _processor() -> str:
    from gobrrr.machine.probe import probe

    return probe().cpu
