"""Where and with what a benchmark ran: the head of every result file."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
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
    """As /proc/cpuinfo names it, with family and model: a virtual machine may hide the number in the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name", platform.processor())
    return f"{name} family {fields.get('cpu family')} model {fields.get('model')}"
