"""Is there room: a rehearsal takes half of the memory that is free at most. Standard library and torch."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from gobrrr.rehearsal.dtypes import DTYPES

SHARE = 0.5
WIDEST = 8
"""Bytes of what is not known."""
COPIES = {"op": 3.0, "cast": 1.0, "optimizer": 1.0, "attention": 1.0, "loss": 1.0}
"""Tensors that a maker holds at once, over those of its description: an op's inputs, its results, and its scratch."""
_GROUPS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def refusal(torch: Any, device: str, parts: list[dict[str, Any]], root: Path = Path("/")) -> str:
    """Why the parts are not made, or nothing. What is free must be known."""
    needed, there = sum(needs(part[side]) for part in parts for side in ("today", "then")), free(torch, device, root)
    if there is None:
        return "how much memory is free cannot be told"
    if needed > SHARE * there:
        return f"it would take {needed / 1e6:.0f} MB, and {there / 1e6:.0f} MB are free"
    return ""


def needs(side: dict[str, Any] | None) -> float:
    """Bytes that a side takes while it runs."""
    if side is None:
        return 0.0
    return COPIES[side["make"]] * sum(_bytes(shape, dtype) for shape, dtype in held(side))


def held(side: dict[str, Any]) -> list[tuple[list[int], str]]:
    """(shape, dtype) of the tensors that a side stands for."""
    dtype = side.get("dtype", "float")
    if side["make"] == "op":
        return list(zip(side["shapes"], side["dtypes"], strict=True))
    if side["make"] == "cast":
        return [([side["elements"]], side["source"]), ([side["elements"]], side["target"])]
    if side["make"] == "optimizer":  # parameter, gradient, two moments, and what a list of tensors makes in between
        return [([6 * count, *shape], dtype) for shape, count in side["tensors"]]
    if side["make"] == "attention":
        *batch, queries, keys, size = side["dims"]
        return [([*batch, 8, queries, keys], dtype), ([*batch, 12, max(queries, keys), size], dtype)]
    rows, hidden, classes = side["dims"]
    return [([5, rows, classes], dtype), ([4, rows + classes, hidden], dtype)]


def _bytes(shape: list[int], dtype: str) -> float:
    return float(prod(shape)) * DTYPES.get(dtype, ("", WIDEST))[1] if shape else 0.0


def free(torch: Any, device: str, root: Path = Path("/")) -> float | None:
    """Bytes that are free on the device: of the host what the system calls available, within the group's limit."""
    if device != "cpu":
        return float(torch.cuda.mem_get_info()[0])
    found = [_available(root), *(_left(root / "sys/fs/cgroup", *names) for names in _GROUPS)]
    known = [each for each in found if each is not None]
    return min(known) if known else None


def _available(root: Path) -> float | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _left(folder: Path, limit: str, used: str) -> float | None:
    try:
        return float((folder / limit).read_text()) - float((folder / used).read_text())
    except (OSError, ValueError):  # no group, or no limit ("max")
        return None
