"""glibc keeps large blocks instead of giving their pages back after every op."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams
    from gobrrr.rules.verdict.report import Report

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
    place = "flags"
    codes = ("BRR202",)
    by_hand = "MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 python train.py"
    edit = AddStatement(SOURCE)

    def probe(self) -> str:
        if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
            return "the allocator is not glibc's"
        return ""

    def is_pointless(self, report: Report) -> bool:
        """Where a device computes, the host's fresh pages are few, unless a finding says otherwise."""
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
