"""Is this a quiet moment: how many cores others keep busy right now. Standard library alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

QUIET = 0.25
"""Cores' worth of others' work below which a moment is quiet: less than that moves no figure by its spread."""
LOOK = 0.25
"""Seconds of one look."""


def busy_cores(
    root: Path = Path("/"), wait: Callable[[float], object] = time.sleep, look: float = LOOK
) -> float | None:
    """Cores that were busy, or taken by the host (steal), over `look` seconds; None where the system does not tell."""
    before = _busy_ticks(root)
    start = time.monotonic()
    wait(look)
    after, took = _busy_ticks(root), max(time.monotonic() - start, look)
    if before is None or after is None:
        return None
    return max(0.0, (after - before) / os.sysconf("SC_CLK_TCK") / took)


def _busy_ticks(root: Path) -> int | None:
    """user, nice, system, irq, softirq and steal of /proc/stat's first line: all but idle and waiting for disks."""
    try:
        ticks = [int(word) for word in (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(ticks) - sum(ticks[3:5]) if len(ticks) == 8 else None
