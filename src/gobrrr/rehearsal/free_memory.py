"""Memory: a rehearsal takes half of the memory that is free at most. Standard library and torch."""

from __future__ import annotations

import contextlib
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any

from gobrrr.machine.probe.system_probe import free_memory
from gobrrr.rehearsal.callables import DTYPES, FRESH, PASSES, PRODUCTS, affordable, span
from gobrrr.system import processes

SHARE = 0.5  # of free memory, for parts; proposed: needs() is an estimate; measured peaks would settle it
WIDEST = 8
"""Bytes of an element whose type is not known."""
COPIES = {
    "op": 2.0,
    "form": 8.0,
    "cast": 1.0,
    "optimizer": 1.0,
    "attention": 1.0,
    "loss": 1.0,
    "mask": 2.0,
    "fresh": 1.0,
}
"""Tensors that a maker holds at once, over those of its description: what a kernel makes of them for itself."""


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
    return COPIES[side["make"]] * sum(float(elements) * _size(dtype) for elements, dtype in held(side))


def held(side: dict[str, Any]) -> list[tuple[int, str]]:
    """(elements, dtype) of the tensors that a side stands for, an op's as the maker lays them."""
    dtype = side.get("dtype", "float")
    if side["make"] in ("op", "form"):
        strides = side.get("strides", [])[: len(side["shapes"])]
        inputs = zip_longest(side["shapes"], strides, fillvalue=())
        laid = [span(shape, affordable(shape, strides)) for shape, strides in inputs]
        return [*zip(laid, side["dtypes"], strict=True), (_made(side), max(side["dtypes"], key=_size, default=""))]
    if side["make"] == "mask":
        return [(side["elements"], dtype)]
    if side["make"] == "cast":
        return [(side["elements"], side["source"]), (side["elements"], side["target"])]
    if side["make"] == "optimizer":  # parameter, gradient, two moments, and what a list of tensors makes in between
        return [(6 * count * prod(shape), dtype) for shape, count in side["tensors"]]
    if side["make"] == "attention":
        *batch, queries, keys, size = side["dims"]
        return [(prod(batch) * (8 * queries * keys + 12 * max(queries, keys) * size), dtype)]
    rows, hidden, classes = side["dims"]
    if side["make"] == "fresh":
        return [((rows + FRESH) * (hidden + classes) + hidden * classes, dtype)]
    return [(5 * rows * classes + 4 * (rows + classes) * hidden, dtype)]


def _made(side: dict[str, Any]) -> int:
    """Elements of a result that may be larger than all inputs: a column and a row make a matrix."""
    shapes, matrices = side["shapes"], [shape for shape in side["shapes"] if len(shape) > 1]
    if side["name"] in PRODUCTS and len(matrices) > 1:
        return int(prod(matrices[-2][:-1]) * matrices[-1][-1])
    deepest = max(map(len, shapes), default=0) if side["name"] in PASSES else 0
    aligned = [[1] * (deepest - len(shape)) + shape for shape in shapes]
    return prod(max(sizes) for sizes in zip(*aligned, strict=True)) if deepest else 0


def _size(dtype: str) -> int:
    return DTYPES.get(dtype, ("", WIDEST))[1]


def free(torch: Any, device: str, root: Path = Path("/")) -> float | None:
    """Bytes that are free on the device: of the host what the system calls available, within the group's limit."""
    if device != "cpu":
        return float(torch.cuda.mem_get_info()[0])
    return free_memory(root)


def confine(device: str) -> None:
    """Limit this process to so much memory: where our sums err, torch says so, and no other process is killed. On the
    host alone: a device's driver maps what it likes."""
    there = free_memory(Path("/")) if device == "cpu" else None
    with contextlib.suppress(ImportError, OSError, ValueError, KeyError, IndexError):
        import resource

        held = processes.sizes("VmData")["VmData"]
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if there is not None:
            most = held + int(SHARE * there)
            resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
