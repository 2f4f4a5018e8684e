"""Account of what a process that is timed did, by its own count, at steps that are the same in all runs."""

from __future__ import annotations

import re

import msgspec

from gobrrr.guard.model.tensor_digest import Seen


class Calls(msgspec.Struct, frozen=True, array_like=True):
    """Top-level calls of models, the rows of the first tensor that each is given, and the elements of all."""

    calls: int = 0
    rows: int = 0
    elements: int = 0


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Counts since the process started, at the end of a step of the measured loop."""

    step: int
    updates: int = 0
    batches: int = 0
    samples: int = 0
    trained: Calls = Calls()
    evaluated: Calls = Calls()
    files: int = 0
    """Different files below the working directory that were opened for writing, and calls of torch.save."""
    lines: int = 0
    """Lines written to stdout."""
    given: tuple[float, float] = (0.0, 0.0)
    """Weighted sum of elements that models are given, and the sum of their absolute values, while no loader is read or
    nothing is learned. Of each row as many elements, so that it is the same however rows are batched."""
    written: int = 0
    """Bytes that these files hold."""
    made: tuple[float, float] = (0.0, 0.0)
    """The same sums of what models give in eval mode, or in a program without updates."""
    by_model: tuple[int, ...] = ()
    """Rows that each model was given, in the order of first calls, while nothing is learned."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """All batches that loaders handed out up to this one: digests of the indices drawn, and of a sample of elements."""

    number: int
    indices: str
    content: str


class Weights(msgspec.Struct, frozen=True, array_like=True):
    """Elements of all parameters that optimizers hold, spread over them, by the shapes in order."""

    step: int
    shapes: str
    seen: Seen


class Clock(msgspec.Struct, frozen=True, array_like=True):
    """One block by its clocks, ns: its steps, all from its grant on, the same by the referee, and what counting took,
    which is in the last alone."""

    steps: int
    ns: int
    whole_ns: int
    referee_ns: int
    own_ns: int = 0


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """Measure that was taken in the process: its sum over samples and how many these are, or why there is none. On what
    it was taken, as `Row.given` has it, and a digest of the file that holds the user's function."""

    name: str
    measure: str
    total: float = 0.0
    weight: float = 0.0
    error: str = ""
    given: tuple[float, float] = (0.0, 0.0)
    source: str = ""


class Account(msgspec.Struct):
    """Account of one process. Of many steps some are looked at, more sparsely the later."""

    rows: list[Row] = []
    batches: list[Batch] = []
    weights: list[Weights] = []
    clocks: list[Clock] = []
    seed: int | None = None
    """Seed of torch's generator at the first step."""
    said: str = ""
    """The first of what it printed."""
    files: dict[str, str] = {}
    """The first of what each text file that it made holds, by path; of a process that is over."""
    ended: int | None = None
    """Steps after which the program came to its end."""
    rank: int = 0
    measured: list[Measured] = []
    """Gates' measures, of a whole run."""
    trains: str = ""
    """Sign that its evaluation trains; empty where there is none."""

    def add(self, later: Account) -> None:
        """Add what came since."""
        self.rows += later.rows
        self.batches += later.batches
        self.weights += later.weights
        self.said += later.said
        self.seed = later.seed if self.seed is None else self.seed
        self.ended = later.ended
        self.measured, self.trains = later.measured, later.trains


NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
"""A number in a line that a program prints."""
MOST_TEXT = 1 << 16
"""Characters of what is printed, and bytes of each file, that are kept. Proposed: hundreds of lines; logs of programs.
"""
LEADING_ROWS, LEADING_WEIGHTS = 6, 2
"""Leading binary digits of the numbers that are looked at: all up to 64, then 32 in every doubling; of weights two.
Proposed: says where something began to a thirtieth, in some hundred rows; the size of accounts would settle it."""


def is_looked_at(number: int, digits: int = LEADING_ROWS) -> bool:
    """Whether a step, or a batch, of this number is noted: it has no more than so many binary digits but zeros."""
    return number > 0 and not number & ((1 << max(0, number.bit_length() - digits)) - 1)
