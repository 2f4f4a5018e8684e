"""Outcome of fresh pairs of processes for two combinations."""

from __future__ import annotations

import msgspec

from gobrrr.trial.receipt.receipt import Compiled, Samples, Speedup, StartUp


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of the referee on one pair of combinations. `step_ns`: medians of baseline and candidate."""

    verdict: str
    reason: str = ""
    speedup: Speedup | None = None
    memory: Speedup | None = None
    p_value: float | None = None
    blocks_needed: int | None = None
    starts_needed: int | None = None
    step_ns: tuple[float | None, float | None] = (None, None)
    start_up: StartUp = StartUp()
    compiled: Compiled | None = None
    peak_bytes: tuple[int | None, int | None] = (None, None)
    step_peak_bytes: tuple[int | None, int | None] = (None, None)
    samples: Samples = Samples()
