"""A live tensor in, what the guard keeps of it out. Imports torch only when called."""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gobrrr.guard.seen import BUCKETS, Seen

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 18
"""Elements worked on at a time: in float64 they fit into a core's cache."""
_SEED = 20021107  # any constant: all runs must sign alike
SAMPLED = 256
"""Elements that are kept of a tensor in a step that is not looked at whole."""


def look(tensor: torch.Tensor, whole: bool = True) -> Seen:
    """Digest, norm and sketch of a tensor of any dtype, layout and device, or of SAMPLED elements spread over it.

    Reads it, changes nothing.
    """
    import torch

    from gobrrr.capture.unseen import unseen

    with torch.no_grad(), unseen():
        dense = _dense(tensor)
        flat = (dense.reshape(-1) if whole else sampled(dense)).to("cpu")  # once: it is read twice, piece by piece
        norm, num_bad, sketch = _summed(flat)
        return Seen(
            tuple(dense.shape) if whole else (flat.numel(),), str(tensor.dtype).removeprefix("torch."), digest(flat),
            norm, num_bad, sketch.numpy().tobytes(),
        )  # fmt: skip


def sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Up to SAMPLED elements, the same for all tensors of that size, in the order of indices; all of a small one."""
    import torch

    tensor = tensor.detach()
    if tensor.numel() <= SAMPLED:
        return tensor.reshape(-1)
    return tensor[torch.unravel_index(_drawn(tensor.numel()).to(tensor.device), tensor.shape)]


@lru_cache(1024)
def _drawn(numel: int) -> torch.Tensor:
    """Not at equal distances, which would be one column of a matrix."""
    import torch

    return torch.tensor(sorted(random.Random(numel).sample(range(numel), SAMPLED)))


def digest(tensor: torch.Tensor) -> str:
    """Of a tensor's bytes."""
    # The fastest of hashlib's (1.7 GB/s with SHA instructions, where blake2b has 0.7): half of a look is this.
    return hashlib.sha1(raw(tensor), usedforsecurity=False).hexdigest()[:24]


def raw(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements as bytes, in the order of its indices."""
    import torch

    data = _dense(tensor).to("cpu").contiguous()
    data = data.reshape(-1).view(torch.uint8) if data.numel() else data.reshape(-1).to(torch.uint8)
    return memoryview(data.numpy())  # type: ignore[arg-type]  # numpy arrays are buffers


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Strided, real, and its own storage's values (a conjugated view, say, has others)."""
    import torch

    found = tensor.detach()
    found = found.dequantize() if found.is_quantized else found
    found = found.to_dense() if found.layout != torch.strided else found
    found = found.resolve_conj().resolve_neg()
    return torch.view_as_real(found) if found.is_complex() else found


def _summed(flat: torch.Tensor) -> tuple[float, int, torch.Tensor]:
    """Norm of the finite elements, number of the others, and the sketch: all elements where they fit, else sums."""
    import torch

    square, num_bad = 0.0, 0
    sums = torch.zeros(BUCKETS, dtype=torch.float64)
    small = flat.numel() <= BUCKETS
    for number, start in enumerate(range(0, flat.numel(), _CHUNK)):
        real = flat[start : start + _CHUNK].to("cpu", torch.float64)
        each = float(real.dot(real))
        if not each < float("inf"):
            finite = torch.isfinite(real)
            num_bad += int(real.numel() - finite.sum())
            real = torch.where(finite, real, 0.0)
            each = float(real.dot(real))
        square += each
        if small:
            return square**0.5, num_bad, real.clone()
        # Each chunk reads the signs from another place: far elements of one bucket must not share theirs.
        at = (number * 7919) % _CHUNK
        signed = real * _signs()[at : at + real.numel()]
        padded = torch.nn.functional.pad(signed, (0, -real.numel() % BUCKETS)) if real.numel() % BUCKETS else signed
        sums += padded.view(-1, BUCKETS).sum(0)
    return square**0.5, num_bad, sums[: flat.numel()] if small else sums


@lru_cache(1)
def _signs() -> Any:
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(0, 2, (2 * _CHUNK,), generator=generator).mul_(2).sub_(1).double()
