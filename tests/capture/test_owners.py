"""Who holds a tensor that no variable leads to."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture.facts.owners import owner_of  # noqa: E402

MODULE_LEVEL: dict[str, Any] = {}


@functools.cache
def bias(length: int) -> Any:
    return torch.ones(length)


class Keeper:
    def __init__(self) -> None:
        self.parts = {"a": [torch.ones(3)]}


def cached() -> Any:
    return bias(7)


def cycled() -> Any:
    every = itertools.cycle(iter([torch.ones(2)]))
    found = next(every)
    HELD.append(every)
    return found


def attribute() -> Any:
    HELD.append(keeper := Keeper())
    return keeper.parts["a"][0]


def in_module() -> Any:
    MODULE_LEVEL["x"] = torch.ones(5)
    return MODULE_LEVEL["x"]


def of_generator() -> Any:
    def scores() -> Iterator[Any]:
        kept = [torch.ones(4)]
        yield kept[0]

    HELD.append(running := scores())
    return next(running)


@pytest.fixture(scope="module", autouse=True)
def _all_of_the_heap() -> None:
    """Holders of this module are looked for too, which tests/conftest.py hides."""
    gc.unfreeze()


HELD: list[Any] = []
LATER = 1 << 62


@pytest.mark.parametrize(
    ("make", "name"),
    [(cached, "lru_cache of bias"), (cycled, "itertools.cycle"), (attribute, "Keeper.parts"),
     (in_module, "MODULE_LEVEL"), (of_generator, "scores.kept")],
)  # fmt: skip
def test_the_holder_is_named_through_containers(make: Callable[[], Any], name: str) -> None:
    held: list[Any] = []
    held.append(make())  # a list that is told not to count, and no variable of this function
    assert name in owner_of(held[0], (held, HELD), LATER)


def test_what_nobody_holds_has_no_owner() -> None:
    held = [torch.ones(6)]
    assert owner_of(held[0], (held,), LATER) == "" or "held" in owner_of(held[0], (held,), LATER)


def test_nobody_is_asked_for_when_the_time_is_spent() -> None:
    assert owner_of(cached(), (), 0) == ""
