"""Every thread of the ops on a core of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

PINNED = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}


class ThreadAffinity(Remedy):
    """OMP_PROC_BIND and OMP_PLACES. Processes that the program forks, loader workers say, inherit the main thread's
    single core: with workers it loses. No finding calls for it yet; it is tried when named."""

    name = "thread_affinity"
    title = "pins the threads of ops to cores of their own (CPU)"
    safety = "exact"
    place = "environment"
    codes = ()
    by_hand = "OMP_PROC_BIND=close OMP_PLACES=cores python train.py"

    def probe(self) -> str:
        import torch

        if "OpenMP" not in torch.__config__.parallel_info():
            return "this torch computes without OpenMP"
        return ""

    def environment(self) -> dict[str, str]:
        return dict(PINNED)

    def apply(self, seams: Seams) -> None:
        if all(os.environ.get(name) == value for name, value in PINNED.items()):
            seams.applied(self.name, "close to each other, one per core")


REMEDY = ThreadAffinity()
