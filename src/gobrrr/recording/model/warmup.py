"""Find the steps to doubt: the first ones, and those after a pause. Standard library only: capture asks while the
program runs, the ledger after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two. Not the statistics module: a program may have a file of that name."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def warmup(walls: Sequence[float]) -> int:
    """Number of leading steps before the first one that is within 1.5x of the later half's median; at least 1.

    Compilation, allocator and caches make first steps slow; a step is warm when it looks like the later ones.
    """
    if len(walls) < 2:
        return len(walls)
    later = median(walls[len(walls) // 2 :])
    warm = next((i for i, wall in enumerate(walls) if wall <= 1.5 * later), len(walls) - 1)
    return max(1, warm)


def settling(loaders: Iterable[dict[str, Any]]) -> int:
    """Steps after a window in which loaders are faster than usual: what their workers piled up in the meantime."""
    queued = [int(f.get("num_workers") or 0) * int(f.get("prefetch_factor") or 0) for f in loaders]
    return 1 + min(24, max(queued, default=0))


def doubted(facts: Iterable[dict[str, Any]]) -> int:
    """Steps after a window that are not plain, by a journal's facts; 2 by those that nobody of ours wrote."""
    try:
        return max(2, settling([loader for record in facts for loader in record.get("loaders") or ()]))
    except (AttributeError, TypeError, ValueError, OverflowError):
        return 2
