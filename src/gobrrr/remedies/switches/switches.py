"""Remedies that are one setting: rows of a table where that is all, classes where more is to be looked at."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from gobrrr.capture.steps import vitals
from gobrrr.machine.measure.command import SHORT_WAIT
from gobrrr.machine.probe.matmul_precision import matmul_precision, setting_back
from gobrrr.remedies.edits.forms import AddStatement, Edit, SwitchOff
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report


class Switch(Remedy):
    """A setting of torch: `read`, and written where it is not as `wanted`, before the first forward of a model again
    where the program may have set another `since`; put back by `write`, or what `backs` gives."""

    def __init__(
        self, name: str, title: str, by_hand: str, wanted: object, read: Callable[[Any], object],
        write: Callable[[Any, Any], object], backs: Callable[[Any], Callable[[], object]] | None = None,
        since: bool = False, edit: Edit | None = None, **more: object,
    ) -> None:  # fmt: skip
        self._wanted, self._read, self._write, self._backs, self._since = wanted, read, write, backs, since
        vars(self).update(name=name, title=title, by_hand=by_hand, edit=edit or AddStatement(by_hand), **more)

    def apply(self, seams: Seams) -> None:
        import torch

        def switch(_: Any = None) -> None:
            before = self._read(torch)
            if before == self._wanted:
                return
            seams.undo(self._backs(torch) if self._backs else partial(self._write, torch, before))
            self._write(torch, self._wanted)
            if self._read(torch) == self._wanted:
                seams.applied(self.name, f"{before} before")

        switch()
        if self._since:
            seams.at_model(switch)


CORES = vitals.own_cores()
ROWS = (
    Switch(  # runs may differ from one another then
        "deterministic_off", "switches torch's deterministic mode off", "torch.use_deterministic_algorithms(False)",
        (False, False), edit=SwitchOff(("use_deterministic_algorithms",)), safety="semantic", since=True,
        read=lambda torch: (torch.are_deterministic_algorithms_enabled(),
                            torch.is_deterministic_algorithms_warn_only_enabled()),
        write=lambda torch, to: torch.use_deterministic_algorithms(to[0], warn_only=to[1]),
    ),
    Switch(
        "flush_denormal", "treats values below 1e-38 as zero: arithmetic on them takes a hundred times as long",
        "torch.set_flush_denormal(True)", True, safety="semantic",
        read=lambda torch: not float(torch.tensor(1e-39) * 0.5), write=lambda torch, to: torch.set_flush_denormal(to),
    ),
    Switch(
        "intraop_threads", "gives every op as many threads as the process may use cores",
        f"torch.set_num_threads({CORES})  # the cores that the process may use here", CORES, safety="tolerance",
        since=True, read=lambda torch: torch.get_num_threads(), write=lambda torch, to: torch.set_num_threads(to),
    ),
    Switch(  # on chips with bf16 units it is bf16, on NVIDIA's GPUs TF32, as "high" is: the guard decides
        "matmul_precision", "lets fp32 matrix products take the library's fast path (the guard says at what accuracy)",
        'torch.set_float32_matmul_precision("medium")', "medium", safety="tolerance", precision="bfloat16",
        overlaps=("bf16_autocast",),
        read=matmul_precision, backs=setting_back, write=lambda torch, to: torch.set_float32_matmul_precision(to),
    ),
)  # fmt: skip
"""Settings of torch that are one call."""


class AnomalyOff(Remedy):
    """torch.autograd's anomaly detection stays off whenever the program switches it on; afterwards it is what the
    program said last."""

    name = "anomaly_off"
    title = "switches torch.autograd's anomaly detection off"
    unseen = (
        "a NaN in backward is no longer refused with an error: a program that catches it and passes the step over "
        "takes that step"
    )
    by_hand = "torch.autograd.set_detect_anomaly(False)"
    edit = SwitchOff(("set_detect_anomaly",))  # detect_anomaly's argument is another: whether it looks for NaN

    def apply(self, seams: Seams) -> None:
        import torch

        plain = torch.set_anomaly_enabled
        said = {"enabled": torch.is_anomaly_enabled(), "check_nan": torch.is_anomaly_check_nan_enabled()}

        @functools.wraps(plain)
        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            said.update(enabled=enabled, check_nan=check_nan)
            plain(False, check_nan)
            if enabled:
                seams.applied(self.name)

        seams.undo(lambda: plain(**said))
        seams.replace(torch, "set_anomaly_enabled", set_anomaly_enabled)
        set_anomaly_enabled(**said)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE = 1 << 30  # bytes, 1 GiB. proposed: above the blocks of a step; the sizes that programs free would settle it
DEFAULT = 128 << 10
"""Both thresholds' default (mallopt(3)); setting either switches their own growth off, which cannot be undone."""
SOURCE = f"""\
import ctypes
import sys

if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
    # Blocks below 1 GiB come from the heap (M_MMAP_THRESHOLD), which keeps what is freed (M_TRIM_THRESHOLD).
    if ctypes.CDLL(None).mallopt({M_MMAP_THRESHOLD}, {LARGE}):
        ctypes.CDLL(None).mallopt({M_TRIM_THRESHOLD}, {LARGE})"""


class MallocThresholds(Remedy):
    """mallopt: blocks below 1 GiB come from the heap, and the heap is not trimmed."""

    name = "malloc_thresholds"
    title = "keeps large blocks of memory in the process: fresh pages cost 5 to 7 times a copy"
    by_hand = "MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 python train.py"
    edit = AddStatement(SOURCE)

    def probe(self) -> str:
        is_glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
        return "" if is_glibc else "the allocator is not glibc's"

    def is_pointless(self, report: Report) -> bool:
        """Return True where a device computes: the host's fresh pages are few then, unless a finding says otherwise."""
        called_for = any(self.name in finding.remedies for finding in report.findings)
        return super().is_pointless(report) or (report.device is not None and not called_for)

    def apply(self, seams: Seams) -> None:
        libc = ctypes.CDLL(None)

        def set_to(size: int) -> bool:
            return bool(libc.mallopt(M_MMAP_THRESHOLD, size) and libc.mallopt(M_TRIM_THRESHOLD, size))

        if set_to(LARGE):
            seams.undo(lambda: set_to(DEFAULT))
            seams.applied(self.name, "1 GiB")
        else:  # before 2.35 no more than 32 MiB
            seams.declined(self.name, "this glibc takes no threshold of 1 GiB")


class ShortWait(Remedy):
    """GOMP_SPINCOUNT and KMP_BLOCKTIME, set before the process starts. Beside others an op on all cores takes a
    scheduler's slice for each thread that has none, since those that wait for it spin: the same four transformers at
    once take steps of 560 ms, or of 9 s. Loader workers are others too (pictures turned in two workers on two cores:
    steps of 69 ms, and of 45). Alone it costs a wake-up per op: small ops took up to twice as long."""

    name = "short_wait"
    title = "lets threads that wait sleep soon, where other processes want the cores (CPU)"
    by_hand = "GOMP_SPINCOUNT=1000 python train.py  # KMP_BLOCKTIME=0 for Intel's OpenMP"
    place = "environment"

    def probe(self) -> str:
        import torch

        return "" if "OpenMP" in torch.__config__.parallel_info() else "this torch computes without OpenMP"

    def environment(self) -> dict[str, str]:
        return dict(SHORT_WAIT)

    def apply(self, seams: Seams) -> None:
        if all(os.environ.get(name) == value for name, value in SHORT_WAIT.items()):
            seams.applied(self.name, "threads that wait sleep after microseconds")

    def predicts(self, report: Report) -> Saving:
        """Promise nothing, and at most the step: all of it may be waiting, and a doubt has no saving of its own."""
        busy = any(f.code in self.codes or "loader_workers" in f.remedies for f in report.findings)
        return Saving(0.0, 0.0, float(report.step.plain_wall_ns)) if busy and report.threads > 1 else Saving()
