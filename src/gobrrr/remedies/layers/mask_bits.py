"""A mask from a quarter of the random numbers. Standard library and torch alone: the rehearsal plays it too."""

from __future__ import annotations

from typing import Any


def fill(noise: Any, p: float, generator: Any = None) -> Any:
    """A contiguous floating tensor on the CPU becomes 1 with chance p, else 0; gives it back. Of each 64-bit number of
    the generator 16 bits decide about an element."""
    import torch

    numbers = torch.empty(-(-noise.numel() // 4), dtype=torch.int64, device="cpu")  # whatever the default device is
    bits = numbers.random_(-(2**63), None, generator=generator).view(torch.int16)[: noise.numel()]
    noise.view(-1).copy_(bits.lt_(round(p * 2**16) - 2**15))
    return noise
