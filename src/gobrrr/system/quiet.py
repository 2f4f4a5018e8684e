"""Is this a quiet moment: how many cores others keep busy right now. Standard library alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

QUIET = 0.25
"""Cores' worth of others' work below which a moment is quiet: less than that moves no figure by its spread."""
LOOK = 0.25
"""Seconds of one look; proposed: 25 jiffies of each CPU; the spread of looks would settle it."""
_TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)  # ns of a jiffy


def busy_cores(
    root: Path = Path("/"), wait: Callable[[float], object] = time.sleep, look: float = LOOK
) -> float | None:
    """Cores that were busy, or taken by the host (steal), over `look` seconds; None where the system does not tell."""
    proc = str(root / "proc")
    try:
        before, start = spent(proc)[0], time.monotonic()
        wait(look)
        after, took = spent(proc)[0], max(time.monotonic() - start, look)
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, (after - before) / 1e9 / took)


def spent(proc: str = "/proc") -> tuple[int, int]:
    """ns that the CPUs of this process's affinity were busy, and that the host took of them (steal).

    Raises OSError, ValueError, IndexError where the system does not tell.
    """
    with open(f"{proc}/stat", "rb") as file:  # noqa: PTH123  (hot path)
        whole = file.readline().split()
        mine = _mine()
        rows = [whole] if mine is None else [row for row in map(bytes.split, file) if row and row[0] in mine]
    if mine is not None and len(rows) < len(mine):
        raise ValueError("CPUs of this process have no row")  # a container may count its own from 0
    busy = stolen = 0
    for row in rows:
        user, nice, system, _idle, _wait, irq, soft, steal = (int(x) for x in row[1:9])
        busy += user + nice + system + irq + soft + steal
        stolen += steal
    return busy * _TICK_NS, stolen * _TICK_NS


def _mine() -> frozenset[bytes] | None:
    """Names of the rows that count; None where every CPU does."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    return None if len(allowed) >= (os.cpu_count() or 1) else frozenset(b"cpu%d" % number for number in allowed)
