"""Every thread of the ops on a core of its own."""

from __future__ import annotations

from typing import ClassVar

from gobrrr.remedies.mechanism.openmp import OpenMP


class ThreadAffinity(OpenMP):
    """OMP_PROC_BIND and OMP_PLACES. Processes that the program forks, loader workers say, inherit the main thread's
    single core: with workers it loses. No finding calls for it yet; it is tried when named."""

    name = "thread_affinity"
    title = "pins the threads of ops to cores of their own (CPU)"
    codes = ()
    by_hand = "OMP_PROC_BIND=close OMP_PLACES=cores python train.py"
    variables: ClassVar[dict[str, str]] = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
    does = "close to each other, one per core"
