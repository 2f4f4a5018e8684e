"""The answer of this package: how much work one call of an op is, whatever time it took."""

from __future__ import annotations

import msgspec


class Work(msgspec.Struct, frozen=True):
    """FLOPs and the least traffic of one call. A multiply-add is two FLOPs; traffic is each input read once and each
    output written once, in bytes. `kind` names the family (matmul, convolution, attention, elementwise, reduction,
    norm, softmax, copy, gather, pool, rnn, optimizer, random, sort, solve, linalg, fft, loss, view); a view does
    nothing."""

    flops: float
    bytes: float
    kind: str
    causal_halved_flops: float | None = None
    """For causal attention: the FLOPs of the unmasked half, which is all that a kernel that skips needs. `flops` is
    always the full count. Null where nothing is causal."""


class NotCounted(Exception):
    """Raised inside a formula when the call does not say enough; `work_of` then answers None, never zero."""


NOTHING = Work(0.0, 0.0, "view")
