"""An allocator that keeps memory instead of giving it back after every op."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class PreloadedAllocator(Remedy):
    """LD_PRELOAD of jemalloc or tcmalloc, where one is installed."""

    name = "preloaded_allocator"
    title = "replaces malloc by jemalloc or tcmalloc, where installed"
    place = "environment"
    codes = ("BRR202",)
    conflicts = ("malloc_thresholds",)
    by_hand = "LD_PRELOAD=libjemalloc.so.2 python train.py"

    def probe(self) -> str:
        return "" if installed() else "neither jemalloc nor tcmalloc is installed"

    def environment(self) -> dict[str, str]:
        found, before = installed(), os.environ.get("LD_PRELOAD", "")
        return {"LD_PRELOAD": f"{found}:{before}".rstrip(":")} if found else {}

    def apply(self, seams: Seams) -> None:
        if installed() in os.environ.get("LD_PRELOAD", ""):
            seams.applied(self.name, installed())


def installed() -> str:
    """File name of the first one found, or nothing."""
    from ctypes.util import find_library

    return next((name for each in ("jemalloc", "tcmalloc_minimal", "tcmalloc") if (name := find_library(each))), "")
