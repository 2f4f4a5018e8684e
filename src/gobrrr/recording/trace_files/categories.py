"""Which table does an event belong to? The names that torch.profiler has given its events from 2021 to today."""

from __future__ import annotations

import re

from gobrrr import words
from gobrrr.recording.model.trace import (
    COMMUNICATION,
    CPU_OP,
    DEVICE_ANNOTATION,
    DEVICE_SYNC,
    KERNEL,
    MEMCPY,
    MEMSET,
    OTHER,
    OVERHEAD,
    PYTHON_FUNCTION,
    USER_ANNOTATION,
)

# What to do with an event.
UNKNOWN, IGNORED, HOST, DEVICE, RUNTIME, FLOW_START, FLOW_END, INSTANT, METADATA, PHASE = range(10)

HOST_KINDS = {
    "cpu_op": CPU_OP,
    "Operator": CPU_OP,
    "user_annotation": USER_ANNOTATION,
    "python_function": PYTHON_FUNCTION,
    "overhead": OVERHEAD,
    "mtia_insight": OTHER,
}
DEVICE_KINDS = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "mtia_ccp_events": KERNEL,
    "hpu_op": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
    "collective_comm": COMMUNICATION,
    "gpu_user_annotation": DEVICE_ANNOTATION,
    "cuda_sync": DEVICE_SYNC,
    "xpu_sync": DEVICE_SYNC,
}
RUNTIMES = frozenset(
    "cuda_runtime cuda_driver Runtime hip_runtime mtia_runtime xpu_runtime glow_runtime privateuse1_runtime "
    "privateuse1_driver".split()
)
FORWARD_BACKWARD = frozenset({"fwdbwd", "forward_backward"})
IGNORED_CATEGORIES = frozenset({"Trace"})
"""The profiler's own span over the whole trace."""

ANNOTATIONS = (words.STEP, words.OPTIMIZER, words.LOADER, "gobrrr.")
"""The format of 2021 calls annotations operators; these are torch's own (and ours)."""
BACKWARD = ("autograd::engine::evaluate_function",)
NODE = re.compile(r"(autograd::|torch::autograd::|([A-Z]\w*::)?[A-Z]\w*Backward\d*$)")
"""Names of nodes of the backward pass: files without sequence numbers tell them by nothing else."""
STEP = re.compile(rf"{words.STEP}(\d{{1,18}})")
MARKER = ("gobrrr.",)
COLLECTIVE_KERNEL = re.compile(
    r"(?i)[nrh]ccl|msccl|oneccl|nvshmem|rocshmem|cross_device_reduce|all_?reduce|all_?gather_?kernel"
    r"|deep_?ep\b|\bep::(inter|intra)node|(inter|intra)node::(dispatch|combine)|multimem_|symm_?mem"
)
"""Only asked where the kernel's own metadata does not say that it is a collective's. The second line: DeepEP, and
torch's symmetric memory."""
OF_THREADS = ("gloo:", "mpi:")
"""How host events are named that carry a collective in threads of the host; NCCL's are kernels."""
COLLECTIVE_OPS = ("c10d::", "nccl:", "record_param_comms", *OF_THREADS)
"""How names of host events begin that are a collective, or its transport."""


def is_communication(name: str) -> bool:
    """Say whether a host event is a collective or its transport."""
    return name.startswith(COLLECTIVE_OPS)


def route(phase: str | None, category: str | None) -> int:
    """Return the route of an event of this phase and category."""
    if phase == "X":
        return _route_complete(category)
    if phase in ("s", "f", "t"):
        if category in FORWARD_BACKWARD and phase != "t":
            return FLOW_START if phase == "s" else FLOW_END
        return IGNORED
    if phase in ("i", "I", "R"):
        return INSTANT
    if phase == "M":
        return METADATA
    return IGNORED if phase == "C" else PHASE


def _route_complete(category: str | None) -> int:
    if category in HOST_KINDS:
        return HOST
    if category in DEVICE_KINDS:
        return DEVICE
    if category in RUNTIMES:
        return RUNTIME
    return IGNORED if category in IGNORED_CATEGORIES else UNKNOWN
