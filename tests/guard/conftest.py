"""What the guard's tests share: the guard goes through all objects of the process, and pytest has a million of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def only_the_objects_of_the_test() -> Iterator[None]:
    """What is frozen no gc.get_objects() gives: half of the guard's time went into pytest's objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
