"""Whether a machine is still the one that was measured: a hash of what moves the ceilings, found without torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict

from gobrrr.machine.probe.system_probe import Hardware

# Switches in the environment that change kernels, threads' placement, or the allocator; how many threads there are
# is not among them, because the measuring sets that itself.
_SWITCHES = ("ATEN_", "DNNL_", "ONEDNN_", "MKL_", "KMP_", "GOMP_", "OMP_", "MALLOC_", "THP_", "CUDA_", "HIP_", "ROCR_")
_EXACT = ("GLIBC_TUNABLES", "LD_PRELOAD", "NVIDIA_TF32_OVERRIDE")
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_THREAD_LIMIT")


def fingerprint(hardware: Hardware, torch_version: str, environ: Mapping[str, str] = os.environ) -> str:
    """16 hex digits over all that is known of the hardware, and the torch build.

    torch's own parallel settings follow from its build, the cores and the switches hashed here.
    """
    switches = {name: value for name, value in environ.items() if is_switch(name)}
    facts = {**asdict(hardware), "torch": torch_version, "switches": switches}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def of_hardware(hardware: Hardware) -> str:
    """The same for the computer alone, whatever torch and switches are on it."""
    return fingerprint(hardware, "", {})


def is_switch(name: str) -> bool:
    """Say whether an environment variable of this name may move a ceiling."""
    return name in _EXACT or (name.startswith(_SWITCHES) and name not in THREAD_COUNTS)
