"""What one run did, step by step, as plain data that can be kept and compared without torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.guard.seen import Seen

MAX_BYTES = 4 << 30


class Data(msgspec.Struct, frozen=True):
    """What a model was given: a digest of it all, one per sample, and how much it was."""

    digest: str
    rows: tuple[str, ...] = ()
    num_elements: int = 0
    mutated: bool = False
    """It was another after the call than before."""
    derived: bool = False
    """Part of what the model was given came out of another one, and is not in the digest."""


class Call(msgspec.Struct, frozen=True):
    """One call of a model by the program. Outputs are kept in the first steps only."""

    model: str
    training: bool
    data: Data
    outputs: tuple[Seen, ...] | None = None
    inside: dict[str, Seen] = {}
    """Outputs of its modules in the order in which they ran; of the first call."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From one optimizer update to the next; in a program without updates one call. What is null was not looked at."""

    calls: tuple[Call, ...] = ()
    losses: tuple[float, ...] = ()
    """What backward() started from, scalars only, before any loss scaling."""
    gradients: dict[str, Seen | None] | None = None
    updates: dict[str, Seen] | None = None
    """What the update added to each parameter; its digest is that of the parameter afterwards."""
    buffers: dict[str, Seen] | None = None
    hyperparameters: tuple[dict[str, str], ...] = ()
    gradient_norm: float | None = None


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `trainable`: requires_grad of every parameter by name; `complete`: the program came to its own end."""

    steps: tuple[Step, ...] = ()
    trainable: dict[str, bool] = {}
    training: bool = True
    complete: bool = False
    remarks: tuple[str, ...] = ()
    """What could not be observed, in words."""

    @property
    def detailed(self) -> tuple[Step, ...]:
        """The first steps, whose tensors were looked at."""
        if not self.training:
            return tuple(s for s in self.steps if s.calls and s.calls[0].outputs is not None)
        return tuple(s for s in self.steps if s.updates is not None)


def write(observation: Observation, file: Path) -> None:
    """Write it whole or not at all."""
    part = file.with_name(file.name + ".part")
    part.write_bytes(msgspec.msgpack.encode(observation))
    part.replace(file)


def read(file: Path) -> Observation:
    """Read it back. Raises GobrrrError."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise GobrrrError(f"{file} is no observation: it is larger than any", "take it anew")
        return msgspec.msgpack.decode(file.read_bytes(), type=Observation)
    except OSError as error:
        raise GobrrrError(f"cannot read {file}: {error.strerror}", "take the observation anew") from None
    except msgspec.DecodeError as error:
        raise GobrrrError(f"{file} is no observation: {error}", "take it anew") from None
