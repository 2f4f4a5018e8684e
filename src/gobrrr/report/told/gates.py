"""A gate in words: how far the user's measure moved, what was allowed, what would settle it; all points of a search."""

from __future__ import annotations

import math

from gobrrr import units
from gobrrr.report.told.blocks import Cell, Line, Table
from gobrrr.trial.receipt.receipt import Gated, Receipt, Tried

STYLES = {"kept": "bold green", "within": "green", "refused": "red", "does not run": "red"}
MOST_NAMED = 6
"""Layers that stay, of which all are named."""


def sentence(gate: Gated) -> str:
    """'accuracy -0.12 points (-0.31 to +0.07), allowed -0.5: accepted'."""
    allowed = f"{gate.allowed:+g}{' %' if gate.unit == '%' else ''}"
    trained = f" after {gate.updates:,} updates on {units.several('seed', len(gate.seeds))}" if gate.updates else ""
    told = f"{gate.name} {change(gate)}{trained}, allowed {allowed}: {gate.verdict}"
    needed = f"about {gate.runs_needed} more runs" if gate.runs_needed else "more runs"
    return f"{told}, {needed} would settle it" if gate.verdict == "undecided" else told


def change(gate: Gated, interval: bool = True) -> str:
    """'-0.12 points (-0.31 to +0.07)'."""
    digits = min(6, max(0, 1 - math.floor(math.log10(abs(gate.allowed))))) if gate.allowed else 2
    unit = f" {gate.unit}" if gate.unit else ""
    known = interval and gate.low is not None and gate.high is not None and not gate.exact
    between = f" ({gate.low:+.{digits}f} to {gate.high:+.{digits}f})" if known else ""
    return f"{gate.change:+.{digits}f}{unit}{between}"


def runs(gate: Gated) -> str:
    """'accuracy 97.2 to 97.1, mean of 5 pairs of runs'."""
    pairs = len(gate.baseline)
    means = [sum(side) / max(1, pairs) for side in (gate.baseline, gate.candidate)]
    told = f"{gate.name} {means[0]:.6g} as the program is, {means[1]:.6g} with the edit"
    how = "; seeds change nothing in it" if gate.exact else f", mean of {units.several('pair', pairs)} of runs"
    return f"{told}{how}"


def points(receipt: Receipt) -> Table | None:
    """Every point of a search: how fast, how large, how good; the best of each first."""
    heads = (("edit", False), ("", False), ("speed", True), ("weights", True), ("quality", False))
    tried = sorted(receipt.points, key=lambda each: (not each.best, -(each.speed or 0.0)))
    rows = tuple((Cell(each.name), Cell(marked(each), style=STYLES.get(each.mark, "magenta")),
                  Cell(f"{each.speed:.2f}x" if each.speed else "", each.speed or 0.0),
                  Cell(units.size(each.bytes) if each.bytes else "", each.bytes), Cell(_quality(each)))
                 for each in tried)  # fmt: skip
    return Table("Every point, by one run each", heads, rows, label="points") if rows else None


def marked(point: Tried) -> str:
    """'kept, not beaten': what became of it, and whether nothing is as fast, as small and as good."""
    return ", ".join(filter(None, (point.mark, "not beaten" if point.best else "")))


def _quality(point: Tried) -> str:
    if point.reason:
        return point.reason
    return "; ".join(f"{gate.name} {_mean(gate):.4g} ({gate.change:+.2g}{' %' if gate.unit == '%' else ''})"
                     for gate in point.gates)  # fmt: skip


def _mean(gate: Gated) -> float:
    return sum(gate.candidate) / max(1, len(gate.candidate))


def left_out(receipt: Receipt) -> list[Line]:
    """Return which layers stay in what was kept, and why some forms were not tried."""
    by_reason: dict[str, list[str]] = {}
    for name, why in receipt.not_tried.items():
        by_reason.setdefault(why, []).append(name)
    kept = [each.stays for each in receipt.points if each.mark == "kept" and each.stays]
    more = [f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "" for names in kept]
    stays = [f"layers that stay: {', '.join(names[:MOST_NAMED])}{rest}" for names, rest in zip(kept, more, strict=True)]
    return [*stays, *(f"not tried: {', '.join(names)}: {why}" for why, names in by_reason.items())]
