"""Which needs of an experiment does this machine lack? Answered without importing torch."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from gobrrr_lab.measure.experiment import Experiment

_DEVICES = ("/dev/nvidiactl", "/dev/kfd")
_JOULES = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


def lacking(experiment: Experiment) -> str:
    """In words, what is missing; empty where nothing is."""
    return ", ".join(said for need in experiment.needs if (said := _MISSING[need]()))


def _torch() -> str:
    return "" if find_spec("torch") else "torch is not installed"


def _device() -> str:
    return "" if any(map(os.path.exists, _DEVICES)) else "no accelerator"


def _compiler() -> str:
    found = any(map(shutil.which, (os.environ.get("CXX") or "g++", "g++", "clang++")))
    return "" if found else "no C++ compiler (g++ or clang++)"


def _ninja() -> str:
    return "" if shutil.which("ninja") else "no ninja, which builds C++ extensions (pip install ninja)"


def _pillow() -> str:
    return "" if find_spec("PIL") else "Pillow is not installed"


def _simplejpeg() -> str:
    return "" if find_spec("simplejpeg") else "simplejpeg is not installed"


def _gloo() -> str:
    return "" if hasattr(os, "fork") else "no gloo on this system"


def _energy() -> str:
    return "" if os.access(_JOULES, os.R_OK) else "no counter of joules that may be read"


_MISSING = {
    "torch": _torch, "device": _device, "compiler": _compiler, "ninja": _ninja, "pillow": _pillow,
    "simplejpeg": _simplejpeg, "gloo": _gloo, "energy": _energy,
}  # fmt: skip
