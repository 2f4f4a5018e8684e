"""A live tensor in, what the guard keeps of it out. Imports torch only when called."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gobrrr.guard.seen import BUCKETS, Seen

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 20
_SEED = 20021107  # any constant: all runs must sign alike


def look(tensor: torch.Tensor) -> Seen:
    """Digest, norm and sketch of a tensor of any dtype, layout and device; reads it, changes nothing."""
    import torch

    from gobrrr.capture.unseen import unseen

    with torch.no_grad(), unseen():
        dense = tensor.detach()
        dense = dense.to_dense() if dense.layout != torch.strided else dense
        dense = torch.view_as_real(dense) if dense.is_complex() else dense
        flat = dense.reshape(-1)
        real = flat.to("cpu", torch.float64)
        finite = torch.isfinite(real)
        num_bad = int(real.numel() - finite.sum())
        real = torch.where(finite, real, 0.0) if num_bad else real
        return Seen(
            tuple(dense.shape), str(tensor.dtype).removeprefix("torch."), digest(flat), float(real.norm()), num_bad,
            _sketch(real).numpy().tobytes(),
        )  # fmt: skip


def digest(tensor: torch.Tensor) -> str:
    """Of a tensor's bytes."""
    return hashlib.blake2b(raw(tensor), digest_size=12).hexdigest()


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's elements as bytes, in their order."""
    import torch

    data = tensor.detach().to("cpu").contiguous()
    data = data.reshape(-1).view(torch.uint8) if data.numel() else data.reshape(-1).to(torch.uint8)
    return data.numpy().tobytes()


def _sketch(real: torch.Tensor) -> torch.Tensor:
    """Flat float64 in; itself where it fits, else BUCKETS signed sums."""
    import torch

    if real.numel() <= BUCKETS:
        return real
    sums = torch.zeros(BUCKETS, dtype=torch.float64)
    signs = _signs()
    for number, start in enumerate(range(0, real.numel(), _CHUNK)):
        part = real[start : start + _CHUNK]
        # Each chunk reads the signs from another place: far elements of one bucket must not share theirs.
        at = (number * 7919) % _CHUNK
        signed = part * signs[at : at + part.numel()]
        padded = torch.nn.functional.pad(signed, (0, -part.numel() % BUCKETS))
        sums += padded.reshape(-1, BUCKETS).sum(0)
    return sums


@lru_cache(1)
def _signs() -> Any:
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(0, 2, (2 * _CHUNK,), generator=generator).mul_(2).sub_(1).double()
