"""What was used on another stream is never freed in a forked child, however it is dropped there."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import DataLoader, Dataset

from gobrrr.data.ahead import FEW, MARKED, Marked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody forks here")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """By the tests alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Cycle:
    """Frees what it holds when garbage is collected, and not before."""

    def __init__(self, held: Any) -> None:
        self.itself, self.held = self, held


def weak(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())


def is_freed_in_a_child(seen: StorageWeakRef, drop: Callable[[], object]) -> bool:
    child = os.fork()
    if child == 0:
        drop()
        os._exit(10 + int(seen.expired()))
    return {10: False, 11: True}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@pytest.mark.parametrize("known", [True, False])
def test_a_child_frees_nothing_that_is_known(known: bool) -> None:
    garbage, held = torch.ones(3), [torch.ones(3)]
    seen = weak(garbage), weak(held[0])
    if known:
        MARKED.add(garbage)
        MARKED.add(held[0])
    Cycle(garbage)
    del garbage
    assert is_freed_in_a_child(seen[0], gc.collect) != known
    assert is_freed_in_a_child(seen[1], held.clear) != known
    gc.collect()
    held.clear()
    assert seen[0].expired() and seen[1].expired(), "the parent holds nothing by it"


class Collects(Dataset[bool]):
    """Whether a worker that was forked later has freed it."""

    def __init__(self, seen: StorageWeakRef) -> None:
        self.seen = seen

    def __len__(self) -> int:
        return 2

    def __getitem__(self, _: int) -> bool:
        gc.collect()
        return bool(self.seen.expired())


def test_workers_that_are_forked_later_collect_garbage_and_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in (True, False):
        tensor = torch.ones(3)
        if known:
            MARKED.add(tensor)
        loader = DataLoader(Collects(weak(tensor)), num_workers=2, multiprocessing_context="fork")
        Cycle(tensor)
        del tensor
        assert [bool(freed) for freed in loader] == [not known] * 2
        gc.collect()


def test_a_view_and_a_graph_keep_it_known() -> None:
    known, tensor = Marked(), torch.ones(4, requires_grad=True)
    product = tensor.detach()
    known.add(product)
    loss = (tensor * product).sum()  # saved for its gradient
    del product
    seen = next(iter(known._known))
    assert not seen.expired()
    view = tensor.detach()[1:]
    del tensor, loss
    assert not seen.expired()
    del view
    assert seen.expired()


def test_what_is_gone_is_forgotten_and_what_stays_is_not() -> None:
    known = Marked()
    for _ in range(10 * FEW):
        known.add(torch.ones(1))
    assert len(known._known) <= FEW + 1
    kept = [torch.ones(1) for _ in range(10 * FEW)]
    for tensor in kept:
        known.add(tensor)
    assert len(known._known - {weak(tensor) for tensor in kept}) <= FEW + 1 and len(known._known) >= len(kept)
    assert all(weak(tensor) in known._known for tensor in kept)
    known.add(kept[0])
    assert len(known._known) <= len(kept) + FEW + 1, "it is known once"
