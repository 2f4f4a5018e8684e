"""A live tensor in, what the guard keeps of it out. Imports torch only when called."""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache
from typing import TYPE_CHECKING

from gobrrr.guard.model.tensor_digest import BUCKETS, WHOLE, Seen

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 18
"""Elements worked on at a time: in float64 they fit into a core's cache, and a device's memory is not
doubled for a look."""
_WORDS = 1 << 22
"""32-bit words of a device's tensor that are digested at a time."""
_FETCHED = 1 << 16
"""Elements of a device's tensor up to which it is fetched at once: cheaper than a dozen kernels for it."""
_SEED = 20021107  # any constant: all runs must sign alike
SAMPLED = 256
"""Elements that are kept of a tensor in a step that is not looked at whole."""


def look(tensor: torch.Tensor, whole: bool = True, of: torch.Tensor | None = None) -> Seen:
    """Digest, norm and sketch of a tensor of any dtype, layout and device, or of SAMPLED elements spread over it. `of`:
    the digest and the dtype are this one's, where a tensor stands for what happened to another.

    Reads it, changes nothing. What is large and lies on a CUDA device is read there: fetched and read here, weights,
    gradients and states of a BERT took most of the guard's time on an H200.
    """
    import torch

    from gobrrr.capture.hooks.transform_guard import unseen

    with torch.no_grad(), unseen():
        plain = dense(tensor)
        flat = plain.reshape(-1) if whole else sampled(plain)
        flat = flat if _is_read_there(flat) else flat.to("cpu")  # once: it is read twice
        norm, num_bad, sketch = _summed(flat)
        dtype = str((tensor if of is None else of).dtype).removeprefix("torch.")
        shape = tuple(plain.shape) if whole else (flat.numel(),)
        return Seen(shape, dtype, digest(flat if of is None else dense(of)), norm, num_bad, raw(sketch).tobytes())


def _is_read_there(tensor: torch.Tensor) -> bool:
    """Whether a tensor is large, and lies on a device that counts in float64 as a CPU does."""
    return tensor.device.type == "cuda" and tensor.numel() > _FETCHED


def sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Up to SAMPLED elements, the same for all tensors of that size, in the order of indices; all of a small one."""
    import torch

    tensor = tensor.detach()
    if tensor.numel() <= SAMPLED:
        return tensor.reshape(-1)
    drawn = _drawn(tensor.numel(), tensor.device)
    if tensor.is_contiguous():
        return tensor.view(-1)[drawn]
    return tensor[torch.unravel_index(drawn, tensor.shape)]


@lru_cache(1024)
def _drawn(numel: int, device: torch.device) -> torch.Tensor:
    """Not at equal distances, which would be one column of a matrix."""
    import torch

    return torch.tensor(sorted(random.Random(numel).sample(range(numel), SAMPLED)), device=device)


def digest(tensor: torch.Tensor) -> str:
    """Digest a tensor's bytes; a large one on a device gets another digest, computed there."""
    if _is_read_there(tensor):
        return digest_there(tensor)
    # The fastest of hashlib's (1.7 GB/s with SHA instructions, where blake2b has 0.7): half of a look is this.
    return hashlib.sha1(raw(tensor), usedforsecurity=False).hexdigest()[:24]


def digest_there(tensor: torch.Tensor) -> str:
    """Digest a tensor's bytes on its own device: two sums of its 32-bit words times odd weights modulo 2**64, for every
    _WORDS of them (multilinear hashing: two tensors that differ have the same with a chance of about 2**-64)."""
    import torch

    flat = dense(tensor).contiguous().reshape(-1).view(torch.uint8)
    size = flat.numel()
    if size % 4 or flat.storage_offset() % 4:
        flat = torch.nn.functional.pad(flat, (0, -size % 4)).clone()
    chunks = torch.split(flat.view(torch.int32), _WORDS)
    sums = [(words.long() * _weights(flat.device)[:, : words.numel()]).sum(1) for words in chunks]
    found = hashlib.sha1(str(size).encode(), usedforsecurity=False)
    found.update(raw(torch.stack(sums)))
    return found.hexdigest()[:24]


@lru_cache(8)
def _weights(device: torch.device) -> torch.Tensor:
    """Odd, so that one word that differs always tells."""
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    drawn = torch.randint(-(2**63), 2**63 - 1, (2, _WORDS), generator=generator, dtype=torch.int64)
    return (drawn | 1).to(device)


def raw(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements as bytes, in the order of its indices."""
    import numpy as np
    import torch

    data = dense(tensor).to("cpu").contiguous()
    data = data.reshape(-1).view(torch.uint8) if data.numel() else data.reshape(-1).to(torch.uint8)
    return memoryview(np.from_dlpack(data).data)  # as tensors.bytes_of() has it


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Strided, real, and its own storage's values (a conjugated view, say, has others); a nested tensor's in a row,
    and those of the tensors that a subclass wraps."""
    import torch

    if is_wrapper(tensor):
        inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])  # type: ignore[attr-defined]
        parts = [dense(each).reshape(-1) for each in inner if isinstance(each, torch.Tensor)]  # DTensor: its mesh too
        return torch.cat([each.to(torch.float64) for each in parts]) if parts else torch.zeros(0)
    found = tensor.detach()
    found = torch.cat([part.reshape(-1) for part in found.unbind()]) if found.is_nested else found
    found = found.dequantize() if found.is_quantized else found
    found = found.to_dense() if found.layout != torch.strided else found
    found = found.resolve_conj().resolve_neg()
    return torch.view_as_real(found) if found.is_complex() else found


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether it is of a subclass that holds other tensors, and no data: torch's C++ code crashes on reading it."""
    return hasattr(tensor, "__tensor_flatten__")


def _summed(flat: torch.Tensor) -> tuple[float, int, torch.Tensor]:
    """Norm of the finite elements, number of the others, and the sketch: all elements where they fit, else sums."""
    square, _, sketch = _sums(flat)
    if square < float("inf"):
        return square**0.5, 0, sketch
    square, num_bad, sketch = _sums(flat, cleaned=True)
    return square**0.5, num_bad, sketch


def _sums(flat: torch.Tensor, cleaned: bool = False) -> tuple[float, int, torch.Tensor]:
    """The sum of all squares, the number of elements that are not finite and count as 0 where it is `cleaned`, and the
    sketch. A device is waited for in the end alone."""
    import torch

    square = torch.zeros((), dtype=torch.float64, device=flat.device)
    num_bad = torch.zeros((), dtype=torch.int64, device=flat.device)
    sums = torch.zeros(BUCKETS, dtype=torch.float64, device=flat.device)
    small, signs = flat.numel() <= WHOLE, _signs(flat.device)
    for number, chunk in enumerate(torch.split(flat, _CHUNK)):
        real = chunk.to(torch.float64, copy=small)
        if cleaned:
            finite = torch.isfinite(real)
            num_bad += finite.numel() - finite.sum()
            real = torch.where(finite, real, 0.0)
        square += real.dot(real)
        if small:
            return float(square), int(num_bad), real
        # Each chunk reads the signs from another place: far elements of one bucket must not share theirs.
        at = (number * 7919) % _CHUNK
        signed = real * signs[at : at + real.numel()]
        padded = torch.nn.functional.pad(signed, (0, -real.numel() % BUCKETS)) if real.numel() % BUCKETS else signed
        sums += padded.view(-1, BUCKETS).sum(0)
    return float(square), int(num_bad), sums


@lru_cache(8)
def _signs(device: torch.device) -> torch.Tensor:
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(0, 2, (2 * _CHUNK,), generator=generator).mul_(2).sub_(1).double().to(device)
