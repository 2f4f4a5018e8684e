"""All random streams of a process: read, told apart by a digest, put back."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import msgspec
import numpy as np

from gobrrr.capture.steps.device_memory import cuda_in_use


class Streams(msgspec.Struct, frozen=True):
    """The states of Python's, NumPy's and torch's global generators; of devices where one is in use."""

    python: tuple[Any, ...]
    numpy: tuple[bytes, int, int, float]
    """Key, position, and NumPy's second half of a normal pair (whether it is kept, and its value)."""
    torch: bytes
    devices: tuple[bytes, ...] = ()

    @property
    def digest(self) -> str:
        """Equal where all streams are."""
        return hashlib.blake2b(msgspec.msgpack.encode(self), digest_size=12).hexdigest()


def streams() -> Streams:
    """As they are now."""
    import torch

    state: Any = np.random.get_state()
    cuda = cuda_in_use()
    devices = cuda.get_rng_state_all() if cuda is not None else []
    numpy = (state[1].tobytes(), int(state[2]), int(state[3]), float(state[4]))
    return Streams(random.getstate(), numpy, _bytes(torch.get_rng_state()), tuple(_bytes(each) for each in devices))


def begin(seed: int) -> None:
    """Begin all of them anew. torch.manual_seed would leave its seed to devices that are used later, and it formats the
    stack for each kind of device."""
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if (cuda := cuda_in_use()) is not None:
        cuda.manual_seed_all(seed)


def restore(found: Streams) -> None:
    """Put all of them back."""
    import torch

    version, internal, gauss = found.python
    random.setstate((version, tuple(internal), gauss))
    key, position, has_gauss, cached = found.numpy
    np.random.set_state(("MT19937", np.frombuffer(key, np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_tensor(found.torch))
    if found.devices and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([_tensor(each) for each in found.devices])


def _bytes(state: Any) -> bytes:
    return bytes(state.cpu().numpy().tobytes())


def _tensor(state: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
