"""Runs of Python's garbage collector: those that gc.collect() asks for are told from those that come by themselves."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from gobrrr.capture.steps.vitals import Collections


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector as it was found, with a heap that takes long enough to be worth an event."""
    allowed, heap = gc.get_threshold(), [[i] for i in range(100_000)]
    gc.collect()
    yield
    gc.enable()
    gc.set_threshold(*allowed)
    del heap


def seen(work: Callable[[], object]) -> list[bool]:
    noted = Collections()
    noted.install()
    work()
    noted.remove()
    return [by_hand for _, _, by_hand in noted.drain()]


def make() -> object:
    return [[i] for i in range(400_000)]


def test_what_is_asked_for_is_told_from_what_comes_by_itself() -> None:
    gc.set_threshold(20_000, 10, 10)
    assert seen(lambda: [gc.collect() for _ in range(3)]) == [True] * 3
    found = seen(make)
    assert found and not any(found)
    assert sum(seen(lambda: (make(), gc.collect()))) == 1


@pytest.mark.parametrize("off", [gc.disable, lambda: gc.set_threshold(0)])
def test_where_the_collector_is_off_every_run_is_asked_for(off: Callable[[], object]) -> None:
    """However many objects were made since the last one."""
    off()
    assert seen(lambda: (make(), gc.collect())) == [True]
