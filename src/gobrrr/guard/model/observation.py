"""Record of one run, step by step, as plain data that can be kept and compared without torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.reference.watched_steps import TWIN_STEPS

MAX_BYTES = 4 << 30
"""Bytes of a file that is read; proposed: far more than any observation has; one refused would settle it."""


class Epoch(msgspec.Struct, frozen=True):
    """Samples that one loader gives in an epoch, whatever their order. Null: could not be had."""

    dataset: str
    batch_size: int | None
    num: int | None = None
    """Indices of one epoch; `unique` different ones."""
    unique: int | None = None
    indices: str | None = None
    """Digest of the sorted indices."""
    items: dict[str, str] = {}
    """Digest of some items by their index."""
    batch: str | None = None
    """Digest of those items collated."""
    draws_alone: bool = False
    """An item fetched twice from the same random state was another: it has a state of its own, and no digest."""
    workers: int = 0
    workers_stay: bool = False
    """From one epoch to the next."""
    workers_seeded: bool = False
    """Something of the program's may give each worker's copy of that state a seed."""


class Data(msgspec.Struct, frozen=True):
    """Input of a model: a digest of it all, one per sample, and its number of elements."""

    digest: str
    rows: tuple[str, ...] = ()
    num_elements: int = 0
    mutated: bool = False
    """It was another after the call than before."""
    moments: tuple[float, ...] = ()
    """Mean, standard deviation and number of elements of the first tensor, padding left out where a mask shows it."""


class Call(msgspec.Struct, frozen=True):
    """One call of a model by the program."""

    model: str
    training: bool
    data: Data
    outputs: tuple[Seen, ...] | None = None
    inside: dict[str, Seen] = {}
    """Outputs of its modules in the order in which they ran; of the first call."""
    tokens: bool = False
    """It is one sequence of transformers' generate(): outputs are its new tokens."""
    sampled: bool = False
    """They were drawn."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From one optimizer update to the next; in a program without updates one call. What is null was not looked at."""

    calls: tuple[Call, ...] = ()
    losses: tuple[float, ...] = ()
    """Values that backward() started from, scalars only, before any loss scaling."""
    gradients: dict[str, Seen | None] | None = None
    updates: dict[str, Seen] | None = None
    """Change of each parameter up to the next use of a model; its digest is that of the parameter then."""
    buffers: dict[str, Seen] | None = None
    states: dict[str, Seen] | None = None
    """State that the optimizers keep for each parameter, as the step leaves it."""
    hyperparameters: tuple[dict[str, str], ...] = ()
    whole: bool = True
    """Its tensors were looked at whole; else samples of each."""
    begun: str = "own"
    """own: from what the run's step before it left. part: from the baseline's weights, buffers and random streams.
    baseline: from those and its optimizers' states."""
    random: str = ""
    """Digest of all random streams when it was over."""
    file_writes: int = 0
    saved: tuple[str, ...] = ()
    """Digests of the names, shapes and dtypes that torch.save was given."""
    copies: dict[str, tuple[Seen, ...]] | None = None
    """Tensors of the program's beside its models that have a parameter's shape, by shape."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `trainable`: requires_grad of every parameter by name; `complete`: the program came to its own end."""

    steps: tuple[Step, ...] = ()
    trainable: dict[str, bool] = {}
    training: bool = True
    complete: bool = False
    remarks: tuple[str, ...] = ()
    """Remarks on what could not be observed."""
    epochs: tuple[Epoch, ...] = ()
    planned: int = TWIN_STEPS
    """Steps that were to be watched."""
    passed: int = 0
    """Steps that nobody looked at, between the planned ones and the last few."""
    printed: dict[str, tuple[tuple[str, ...], ...]] | None = None
    """Numbers in the lines on stdout, line by line, by what stays of a line without them."""
    ranks: int = 1
    """Ranks of the job that the process is of."""
    transformed: bool = False
    """Among its calls are transforms of torch.func: they take what others of them gave, and there is no float64 run."""

    @property
    def num_looked(self) -> int:
        """Steps whose tensors were looked at."""
        if not self.training:
            return sum(bool(s.calls) and s.calls[0].outputs is not None for s in self.steps)
        return sum(s.updates is not None for s in self.steps)


AGAIN = "run the program under the guard again"
"""Hint where a file of the guard cannot be read."""


def write(observation: Observation, file: Path) -> None:
    """Write it whole or not at all."""
    part = file.with_name(file.name + ".part")
    part.write_bytes(msgspec.msgpack.encode(observation))
    part.replace(file)


def read(file: Path) -> Observation:
    """Read it back. Raises GobrrrError."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise GobrrrError(f"{file} is too large: the guard's records have at most {MAX_BYTES:,} bytes", AGAIN)
        return msgspec.msgpack.decode(file.read_bytes(), type=Observation)
    except OSError as error:
        raise GobrrrError(f"cannot read {file}: {error.strerror}", AGAIN) from None
    except msgspec.DecodeError as error:
        raise GobrrrError(f"{file} is no record of the guard: {error}", AGAIN) from None
