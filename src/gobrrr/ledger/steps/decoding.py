"""Speed of transformers' generate() in tokens: all per second, the first of a call, each one after it?"""

from __future__ import annotations

from statistics import median

import msgspec
import numpy as np

from gobrrr.recording.model import event_kinds as ev
from gobrrr.spans import Ints

LOOKS = (ev.WINDOW_BEGIN, ev.WINDOW_END, ev.REST_BEGIN, ev.REST_END, ev.ASIDE)
"""Events that lie between two tokens only where gobrrr itself took time, or looked away."""


class Decoding(msgspec.Struct, frozen=True):
    """Figures of all tokens that came while nothing of ours took time. In a call of several rows each of them gets a
    token at once; where a round gives several tokens, its time is shared by them."""

    calls: int
    rows: float
    """In a call, median."""
    tokens: int
    tokens_per_s: float
    """While generate() runs."""
    first_p50_ns: float | None
    """Time to first token, from the call on; null where none was seen from its beginning."""
    first_p99_ns: float | None
    token_p50_ns: float | None
    """Time per token behind the first."""
    token_p99_ns: float | None


def decoding(events: Ints) -> Decoding | None:
    """Figures of a journal's events; None without a token."""
    first: list[int] = []
    each: list[float] = []
    rows: list[int] = []
    tokens = time = begun = last = length = 0
    told = events[np.isin(events[:, 1], (ev.GENERATE, ev.TOKENS, *LOOKS))]
    for t, kind, num, columns in told.tolist():
        if kind == ev.TOKENS:
            new = columns - length if length else 0
            if new > 0 and last:
                first += [t - begun] if begun else []
                each += [] if begun else [(t - last) / new] * new
                tokens, time = tokens + num * new, time + t - (begun or last)
                begun = 0
            elif not length:
                rows.append(num)
            length, last = max(length, columns), t
        elif kind == ev.GENERATE:
            begun, last, length = t, 0, 0
        else:
            begun = last = 0
    if not tokens or time <= 0:
        return None
    firsts, others = ([_at(times, share) for share in (0.5, 0.99)] for times in (first, each))
    return Decoding(len(rows), float(median(rows or [1])), tokens, 1e9 * tokens / time, *firsts, *others)


def _at(times: list[int] | list[float], share: float) -> float | None:
    return float(np.quantile(times, share)) if times else None
