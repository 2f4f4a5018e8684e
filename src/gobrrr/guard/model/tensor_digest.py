"""A tensor as the guard keeps it: bitwise digest, norm, and a sketch from which errors between runs are computed.

The sketch is a count sketch (Charikar, Chen, Farach-Colton 2002): elements are added with random signs into BUCKETS
sums, the same way in every run. It is linear, so the sketch of a difference is the difference of the sketches; the
expected square of its norm is that of the tensor, with a relative deviation of at most sqrt(2 / BUCKETS), 3 % in the
norm. A tensor that fits is kept whole, and then everything is exact.
"""

from __future__ import annotations

import math
import struct

import msgspec
import numpy as np
import numpy.typing as npt

BUCKETS = 512
"""Sums of a sketch, 4 KiB; proposed: norms to 3 % (see above); wrong verdicts near a limit would settle it."""
WHOLE = 1024
"""Elements up to which a tensor is kept whole: biases and norms of a BERT have 768, and of sums no element is known."""
FEW, STRAY, FAINT, ROUNDED = 0.01, 8.0, 1e-4, 1e-3
"""Share of a tensor's elements that chance may move (none of less than a hundred); multiple of the median difference
that theirs exceed (five deviations of a normal distribution); largest gradient that they have, as a share of its root
mean square (8 in 100,000 of normal ones have less; BERT's stray element had 8e-7); and share of that gradient that
rounding moves it by."""
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Spacing of numbers above 1."""


class Seen(msgspec.Struct, frozen=True):
    """One tensor. `digest` of its bytes; `norm` in float64; `num_bad`: elements that are NaN or infinite."""

    shape: tuple[int, ...]
    dtype: str
    digest: str
    norm: float
    num_bad: int
    sketch: bytes

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def eps(self) -> float:
        """Spacing of its dtype; that of float32 where it has none."""
        return EPS.get(self.dtype, EPS["float32"])

    def values(self) -> npt.NDArray[np.float64]:
        """The sketch."""
        return np.frombuffer(self.sketch, np.float64)


def same(a: Seen | None, b: Seen | None) -> bool:
    """Whether two are bitwise equal; a NaN equals nothing, itself included."""
    if a is None or b is None:
        return a is b
    return a.digest == b.digest and a.dtype == b.dtype and a.shape == b.shape and not a.num_bad


def distance(a: Seen, b: Seen) -> float:
    """Norm of the difference of what is finite; infinite where the shapes differ, or one holds more that is not (logits
    that are masked by -inf hold as much in all runs)."""
    if a.shape != b.shape or a.num_bad != b.num_bad:
        return math.inf
    if a.digest == b.digest and a.dtype == b.dtype:
        return 0.0
    return float(np.linalg.norm(a.values() - b.values()))


def distance_but_coins(a: Seen, b: Seen, gradients: tuple[Seen, Seen], most: float) -> float:
    """The same of two updates without the FEW elements that differ far more than all others and whose gradient (of `a`,
    of `b`) is FAINT and ROUNDED to another one, if none of these differs by more than `most`: in tensors that are kept
    whole, or samples of elements."""
    whole, (theirs, true) = distance(a, b), gradients
    kept_whole = len(b.values()) == b.numel and theirs.shape == true.shape == b.shape
    if not 0 < whole < math.inf or not kept_whole:
        return whole
    apart, ours, faint = np.abs(a.values() - b.values()), theirs.values(), true.values()
    stray = apart > STRAY * np.median(apart)
    least = FAINT * true.norm / math.sqrt(true.numel)
    rounded = np.abs(ours - faint) > ROUNDED * np.abs(faint)
    coin = stray & (np.abs(faint) <= least) & rounded & (faint != 0)
    few = coin.sum() <= FEW * b.numel and apart[coin].max(initial=0.0) <= most
    return float(np.linalg.norm(apart[~coin])) if few else whole


def cosine(a: Seen, b: Seen) -> float:
    """Return the cosine of the angle between two, estimated from their sketches alone; zero where the shapes differ,
    one is nothing, or one holds more that is not finite."""
    if a.shape != b.shape or a.num_bad != b.num_bad:
        return 0.0
    x, y = a.values(), b.values()
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if norms else 0.0


def scalar(value: float) -> Seen:
    """A loss as a tensor of one element."""
    bad = 0 if math.isfinite(value) else 1
    data = struct.pack("<d", 0.0 if bad else value)
    return Seen((1,), "float32", data.hex(), abs(value) if not bad else 0.0, bad, data)
