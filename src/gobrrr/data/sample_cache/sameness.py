"""Whether a data set gives the same sample for the same index: what draws random numbers must not be computed once."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from gobrrr.errors import GobrrrError

_HINT = "keep what is random after the cache: cache what comes before it, or say check=False if it does not matter"


def check_same(compute: Callable[[int], bytes | bytearray], kept: Callable[[int], bytes | None], length: int) -> None:
    """Compute the payloads of the first, the last and two more samples under two states of the random streams, which
    are put back.

    A sample that is `kept` (None where it is not) stands for the second. Raises GobrrrError where a sample draws from
    torch's, NumPy's or Python's stream, or is another the second time.
    """
    for index in sorted({0, length // 3, 2 * length // 3, length - 1} if length else ()):
        with streams(1) as drawn:
            try:
                first = compute(index)
            except GobrrrError:
                raise  # it cannot be kept
            except Exception:
                continue  # raised again where the sample is asked for, which may be never
        if drawn:
            raise GobrrrError(f"sample {index} draws random numbers ({' and '.join(drawn)})", _HINT)
        stored: bytes | bytearray | None = kept(index)
        if stored is None:
            with streams(2):
                stored = compute(index)
            if first != stored:
                raise GobrrrError(f"sample {index} is another the second time it is computed", _HINT)
        elif first != stored:
            raise GobrrrError(
                f"sample {index} is another than the one that is kept: something has changed that no fingerprint sees",
                "delete the folder, or name another; key= can hold what changes (a version, a file's date)",
            )


@contextlib.contextmanager
def streams(seed: int) -> Iterator[list[str]]:
    """All global streams seeded, and put back; gives the names of those that were drawn from, at the end."""
    drawn: list[str] = []
    python, array, tensor = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed accelerators too
        before = states()
        yield drawn
        drawn += [name for name, state in states().items() if state != before[name]]
    finally:
        random.setstate(python)
        np.random.set_state(array)
        torch.set_rng_state(tensor)


def states() -> dict[str, Any]:
    """Return the states of torch's, NumPy's and Python's random streams, to be compared: 25 us."""
    array: Any = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": (array[1].tobytes(), *array[2:]),
        "random": random.getstate(),
    }
