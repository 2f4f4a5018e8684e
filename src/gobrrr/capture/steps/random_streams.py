"""The global random streams of this process: where torch's, NumPy's and Python's stand, to be compared and put back."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
from collections.abc import Iterator
from typing import Any

from gobrrr.capture.hooks.transform_guard import unseen

NAMES = ("torch", "NumPy", "random")


def states() -> tuple[Any, ...]:
    """Return the state of each stream in the order of NAMES, to be compared; some 20 us. NumPy's is null where nobody
    has imported it."""
    import torch

    with unseen():
        tensor = torch.default_generator.get_state().numpy().tobytes()
    numpy = sys.modules.get("numpy")
    array = None if numpy is None else pickle.dumps(numpy.random.get_state(legacy=False))
    return tensor, array, random.getstate()


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Undo all draws made inside: the states before are put back."""
    import torch

    with unseen():
        tensor = torch.default_generator.get_state()
    numpy, python = sys.modules.get("numpy"), random.getstate()
    array = None if numpy is None else numpy.random.get_state(legacy=False)
    try:
        yield
    finally:
        with unseen():
            torch.default_generator.set_state(tensor)
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(array)
