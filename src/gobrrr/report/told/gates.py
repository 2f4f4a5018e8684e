"""A gate in words: how far the user's measure moved, what was allowed, and what would settle it."""

from __future__ import annotations

import math

from gobrrr import units
from gobrrr.trial.receipt.receipt import Gated


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
