"""Name the measured figures not to trust too far, each in a sentence."""

from __future__ import annotations

from typing import Any

from gobrrr import units
from gobrrr.machine.measure.sampling import MAX_SPREAD, spread

REMEDY = "Other work ran here, or the clock moved: `gobrrr machine --refresh` on an idle machine settles it."
FEW_ROUNDS = 5
"""Below this many samples the quartiles are single samples, and say little."""
_NAMES = {"cores": "the effective cores", "page": "the cost of a fresh page", "dispatch": "the dispatch of a small op"}


def doubts_of(figures: dict[str, dict[str, Any]], memory_bytes: int) -> tuple[str, ...]:
    """Sentences for figures with too wide a spread, too few samples or none, in the order of the figures."""
    found = []
    lost = [describe(key) for key, figure in figures.items() if not figure["count"]]
    if lost:
        found.append(f"The time was up before {_listed(lost)} could be measured.")
    few = [describe(key) for key, figure in figures.items() if 0 < figure["count"] < FEW_ROUNDS]
    if few:
        found.append(f"Fewer than {FEW_ROUNDS} samples fitted into the time for {_listed(few)}.")
    found += [_wide(key, figure) for key, figure in figures.items() if spread(figure) > MAX_SPREAD]
    held_up = [dtype for dtype in _dtypes(figures) if _rate(figures, "all", dtype) < 0.9 * _rate(figures, "1", dtype)]
    if held_up:
        found.append(
            f"The matrix products in {_listed(held_up)} were slower at all threads than at one: other work holds the "
            "cores, and no ceiling at all threads can be trusted."
        )
    if memory_bytes == 0:
        found.append("The system does not tell how much memory there is; large copies were kept small.")
    return tuple(found)


def describe(key: str) -> str:
    """'matmul/all/bf16' -> 'the bf16 matrix product at all threads'."""
    kind, *rest = key.split("/")
    if kind == "matmul":
        threads = {"1": "1 thread", "all": "all threads"}.get(rest[0], "the accelerator")
        return f"the {rest[1]} matrix product {'on' if rest[0] == 'device' else 'at'} {threads}"
    if kind == "copy":
        return f"the copy of {units.size(int(rest[1]))} at {units.several('thread', int(rest[0]))}"
    return _NAMES.get(key, f"the {' '.join(rest) or kind} of the accelerator")


def amount(value: float, unit: str) -> str:
    """A figure in its unit, rounded."""
    if unit == "FLOP/s":
        return units.flop_rate(value)
    if unit == "B/s":
        return units.byte_rate(value)
    return units.duration(value) if unit == "ns" else f"{value:.2f} {unit}"


def _wide(key: str, figure: dict[str, Any]) -> str:
    low, high = amount(figure["low"], figure["unit"]), amount(figure["high"], figure["unit"])
    text = describe(key)
    return f"{text[0].upper()}{text[1:]} varied by {units.share(spread(figure))} ({low} to {high})."


def _dtypes(figures: dict[str, dict[str, Any]]) -> list[str]:
    keys = [key for key, figure in figures.items() if key.startswith("matmul/all/") and figure["count"]]
    return [key.rpartition("/")[2] for key in keys]


def _rate(figures: dict[str, dict[str, Any]], label: str, dtype: str) -> float:
    return float(figures.get(f"matmul/{label}/{dtype}", {}).get("median", 0.0))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
